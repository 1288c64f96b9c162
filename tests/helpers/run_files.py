"""One builder for the run files of tests: sections as keywords, as TOML or as a RunFile."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tacit import config
from tacit.config import RunFile
from tacit.config.definition import Definition, worker_names
from tacit.digests import canonical

Keys = Mapping[str, Any] | str  # a section's keys; or as lines of TOML
Layer = Mapping[str, Keys] | str  # sections by name; or as TOML

PLACES = 256  # as many edges as a file of tests has, which share a rig
DEFAULTS: Layer = {"data": {"dataset": "digits"}, "model": {"name": "logistic"}}
# MAPA with noise, where what it teaches is no matter; [run] and [edges] are the test's.
MAPA: Layer = {
    "algorithm": {"name": "mapa", "smoothness": 1.0, "deviation": 1.0},
    "privacy": {"noise_multiplier": 1.0, "clip": 1.0, "batch": 32, "epsilon": 100.0},
}
# The same without noise: no push is held back.
ASGD: Layer = {
    "algorithm": {"name": "asgd", "smoothness": 1.0, "deviation": 1.0},
    "privacy": {"mechanism": "none", "clip": 1.0, "batch": 32},
}


def toml(*layers: Layer, **sections: Keys) -> str:
    """Return a run file of these sections as TOML.

    Of the same key the last value counts; None leaves it out. [data] is digits and [model] logistic
    regression unless a layer sets others.
    """
    merged: dict[str, dict[str, Any]] = {}
    for layer in (DEFAULTS, *layers, sections):
        content = tomllib.loads(layer) if isinstance(layer, str) else layer
        for name, keys in content.items():
            section = tomllib.loads(keys) if isinstance(keys, str) else keys
            merged.setdefault(name, {}).update(section)
    return "".join(
        f"[{name}]\n"
        + "".join(f"{key} = {_value(value)}\n" for key, value in keys.items() if value is not None)
        for name, keys in merged.items()
    )


def run_file(*layers: Layer, **sections: Keys) -> RunFile:
    """Return the run file that `toml` writes, parsed and checked. Raise ConfigError."""
    return config.parse(toml(*layers, **sections), "test")


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value) if isinstance(value, str | bool) else repr(value)


def definition_text(run: RunFile) -> str:
    """Return the definition that a Hello of an edge of `run` states."""
    return canonical(run.agreed())


def roomy(run: RunFile, places: int = PLACES) -> Definition[Any]:
    """Return the definition of `run` with names for so many edges, whatever its data is dealt to."""
    definition = run.define()
    plans = replace(definition.plans, workers=places)
    return replace(definition, plans=plans, worker_names=worker_names(places))
