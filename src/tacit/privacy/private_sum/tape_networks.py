"""The tapes of tacit's own deep and recurrent networks."""

from __future__ import annotations

from tacit.kernels.tape_layout import RISING
from tacit.models import Model
from tacit.models.model_contract import groups_of
from tacit.models.zoo.deep import DeepModel
from tacit.models.zoo.lstm import Lstm
from tacit.privacy.private_sum.tape_plan import Tape, TapeValue, indices_of


def laid(model: Model) -> Tape | None:
    """Return the tape of a network and of its loss, the cross-entropy; None: it has none."""
    if model.objective is not None:
        return None
    if type(model) is DeepModel:
        return _deep(model)
    if type(model) is Lstm:
        return _recurrent(model)
    return None


def _deep(model: DeepModel) -> Tape:
    tape = Tape()
    weights = iter(indices_of([shape for _, shape in model.layout]))
    steps = iter(model.steps)

    def convolved(x: TapeValue, follows: int) -> TapeValue:
        window = (step := next(steps)).window
        apply = tape.convolve if window.groups == 1 else tape.convolve_each
        output = apply(x, next(weights), next(weights), window.stride, window.padding)
        return tape.normalize(output, groups_of(step.outputs), follows=follows)

    x = convolved(tape.picture(model.shape), RISING)
    for _ in range(len(model.steps) // 2):
        if model.name == "resnet":
            inside = convolved(convolved(x, RISING), 0)
            x = tape.add(inside, x, RISING)
        else:
            x = convolved(convolved(x, RISING), RISING)
    tape.dense(tape.average(x), next(weights), next(weights))
    return tape


def _recurrent(model: Lstm) -> Tape:
    tape = Tape()
    weights = iter(indices_of([shape for _, shape in model.layout]))
    x = tape.embed(model.shape[0], next(weights))
    for _ in model.hidden:
        x = tape.cells(x, next(weights), next(weights), next(weights))
    tape.dense(x, next(weights), next(weights))
    return tape
