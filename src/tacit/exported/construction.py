"""How somebody makes the network of an exported model again, without tacit's run: lines of Python.

They are for the model card; `model.safetensors` fits what they make, by `load_state_dict`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.config import RunFile
from tacit.models import Model
from tacit.models.zoo.as_modules import construction_of

_LINES = """\
{path}from {module} import {name}
from safetensors.torch import load_file
network = {name}({arguments})
network.load_state_dict(load_file("model.safetensors"))"""


def lines(run: RunFile, model: Model) -> str:
    """Return Python that makes `network`, with its weights, in the exported folder."""
    if run.model.file is not None:
        arguments = {"file": f"code/{run.model.file}"}
        return _written("", "tacit.models.graph.frozen_network", "FrozenNetwork", arguments)
    if run.model.entry is None:
        kind, arguments = construction_of(model)
        return _written("", kind.__module__, kind.__name__, arguments)
    module, _, name = run.model.entry.partition(":")
    import_path = 'import sys\nsys.path.insert(0, "code")\n'
    return _written(import_path, module, name, run.model.arguments)


def _written(path: str, module: str, name: str, arguments: Mapping[str, Any]) -> str:
    keywords = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return _LINES.format(path=path, module=module, name=name, arguments=keywords)
