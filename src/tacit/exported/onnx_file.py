"""A trained model as an ONNX file, for servers that know neither tacit nor torch.

Input `rows` (N, *shape): examples as the edges' own steps make them of a file. Outputs: `scores`
(N, …), what the network gives, and `answers` (N, …), what `tacit predict` makes of them. N is free.

torch writes down what the model does with one example. ONNX's `Scan` does it to each row by itself,
so every network has a free N, and no row's answer depends on its companions.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tacit.datasets.target import Target
from tacit.errors import FROM_OWN_CODE, ConfigError
from tacit.graphs.freezing import in_silence
from tacit.models import Model
from tacit.models.graph.graph_model import GraphModel
from tacit.models.objectives import EventObjective
from tacit.shown import printable

if TYPE_CHECKING:
    import onnx

ONNX = "model.onnx"
_ROWS, _OUTPUTS = "rows", ("scores", "answers")


class _Served(nn.Module):
    """Scores and answers of a batch of one."""

    def __init__(self, model: Model, params: Tensor, target: Target) -> None:
        super().__init__()
        self._model, self._target = model, target
        self._names = {name: name.replace(".", "__") for name in (name for name, _ in model.layout)}
        for name, value in model.unflatten(params).items():
            self.register_buffer(self._names[name], value.clone())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores (1, …) and answers (1, …) of x (1, *shape)."""
        values = {name: self.get_buffer(place) for name, place in self._names.items()}
        model = self._model
        if isinstance(model, GraphModel):
            scores = model.checked.network.run({**model.frozen, **values}, x)
        else:
            flat = [values[name].reshape(-1) for name, _ in model.layout]
            scores = model.logits(torch.cat(flat), x)
        return scores, _answers(model, self._target, scores)


def _answers(model: Model, target: Target, scores: Tensor) -> Tensor:
    """Return what `tacit predict` prints for scores (1, …): shares, or the number."""
    objective = model.objective
    if objective is not None:
        means = objective.means(scores.reshape(1, *target.shape, target.outputs))
        return 1 - means if isinstance(objective, EventObjective) else means
    if target.kind == "number":
        return target.unscaled(scores.flatten())
    return model.probabilities(scores)


def onnx_file(model: Model, params: Tensor, target: Target) -> bytes:
    """Return the model with `params` (d,) as the bytes of an ONNX file.

    Raises ConfigError where ONNX has no words for what the model does.
    """
    from onnx.checker import ValidationError, check_model
    from torch.onnx import OnnxExporterError

    x, _ = model.random_batch(1, torch.Generator().manual_seed(0))
    served = _Served(model, params, target).train(False)
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)  # onnxscript's, on what it could not make shorter
    try:
        with in_silence(), torch.no_grad():
            program = torch.export.export(served, (x,), strict=False)
            exported: Any = torch.onnx.export(program, (), dynamo=True, verbose=False)
        row_by_row = _of_rows(exported.model_proto)
        check_model(row_by_row)
    except (*FROM_OWN_CODE, OnnxExporterError, ValidationError) as error:
        raise ConfigError(
            f"--onnx: {model.name} cannot be written as ONNX: {_cause(error)}"
        ) from error
    finally:
        logging.disable(disabled)
    content: bytes = row_by_row.SerializeToString()
    return content


def _cause(error: BaseException) -> str:
    """Return the first line of what an error of torch began with."""
    while error.__cause__ is not None:
        error = error.__cause__
    first = (str(error).splitlines() or [""])[0]
    return printable(f"{type(error).__name__}: {first}", 250)


def _of_rows(single: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model that does to each of several rows what `single` does to a batch of one."""
    from onnx import TensorProto, helper

    graph = single.graph
    [taken] = graph.input
    kind = taken.type.tensor_type
    shape = [size.dim_value for size in kind.shape.dim]
    first = helper.make_tensor("_first", TensorProto.INT64, [1], [0])
    body_outputs, outputs, ends = [], [], []
    for name, result in zip(_OUTPUTS, graph.output, strict=True):
        sizes = [size.dim_value for size in result.type.tensor_type.shape.dim]
        element = result.type.tensor_type.elem_type
        ends.append(helper.make_node("Squeeze", [result.name, "_first"], [f"_{name}"]))
        body_outputs.append(helper.make_tensor_value_info(f"_{name}", element, sizes[1:]))
        outputs.append(helper.make_tensor_value_info(name, element, ["N", *sizes[1:]]))
    begin = helper.make_node("Unsqueeze", ["_row", "_first"], [taken.name])
    row = helper.make_tensor_value_info("_row", kind.elem_type, shape[1:])
    body = helper.make_graph([begin, *graph.node, *ends], "row", [row], body_outputs)
    scan = helper.make_node("Scan", [_ROWS], list(_OUTPUTS), body=body, num_scan_inputs=1)
    rows = helper.make_tensor_value_info(_ROWS, kind.elem_type, ["N", *shape[1:]])
    whole = helper.make_graph([scan], "tacit", [rows], outputs, [first, *graph.initializer])
    return helper.make_model(
        whole,
        producer_name="tacit",
        opset_imports=single.opset_import,
        functions=single.functions,
        ir_version=single.ir_version,
    )
