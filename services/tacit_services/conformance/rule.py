"""Whether a rule of local steps sees nothing but what it is given.

Its steps are recorded beside private rows, and taken again by `python -m` of this module, a process
that has none, on what looks like another machine in another year (`elsewhere`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from tacit.algorithms.own.own_steps import LocalRule, OwnStepsTask
from tacit_services.conformance import elsewhere


@dataclass(frozen=True, slots=True)
class RuleStep:
    """One step of a rule: what it was given, and what it gave."""

    given: tuple[Tensor, Tensor, Tensor]
    number: int
    gave: Tensor


class RecordedRule(LocalRule):
    """A rule whose steps are recorded."""

    def __init__(self, rule: LocalRule) -> None:
        self._rule = rule
        self.steps: list[RuleStep] = []

    def step(self, params: Tensor, gradient: Tensor, start: Tensor, number: int) -> Tensor:
        """Return the rule's step."""
        given = params.clone(), gradient.clone(), start.clone()
        gave = self._rule.step(params, gradient, start, number)
        self.steps.append(RuleStep(given, number, gave.clone()))
        return gave


def differs(
    task: OwnStepsTask, folder: Path, edges: Mapping[str, list[RuleStep]], place: Path
) -> str:
    """Take the recorded steps of edges again in a process without rows; return what differs.

    edges: each one's steps. place: a folder for what the process reads. Returns "" where nothing
    differs.
    """
    tensors: dict[str, Tensor] = {}
    for name, steps in edges.items():
        tensors[f"{name}/numbers"] = torch.tensor([step.number for step in steps])
        for at, step in enumerate(steps):
            parts = enumerate((*step.given, step.gave))
            tensors |= {f"{name}/{at}/{part}": given for part, given in parts}
    safetensors.torch.save_file(tensors, place / "steps.safetensors")
    (place / "task.json").write_text(task.model_dump_json())
    child = elsewhere.ran(
        "tacit_services.conformance.rule", str(folder.resolve()), str(place), *edges
    )
    return child.stdout.strip() if child.returncode == 0 else child.stderr.strip()[-300:]


def _again(folder: Path, place: Path, names: list[str]) -> str:
    """Return a sentence for the first step that differs, or ""."""
    task = OwnStepsTask.model_validate_json((place / "task.json").read_text())
    tensors = safetensors.torch.load_file(place / "steps.safetensors")
    for name in names:
        at = _first_other(task.rule(folder), name, tensors)
        if at is not None:
            return (
                f"{name}: step {at} of the rule differs in a process without rows, with another "
                "host's name, date and time zone"
            )
    return ""


def _first_other(rule: LocalRule, name: str, tensors: dict[str, Tensor]) -> int | None:
    for at, number in enumerate(tensors[f"{name}/numbers"].tolist()):
        params, gradient, start, gave = (tensors[f"{name}/{at}/{part}"] for part in range(4))
        if not torch.equal(rule.step(params, gradient, start, number), gave):
            return at
    return None


if __name__ == "__main__":
    torch.set_num_threads(1)
    # The parent reads it.
    print(_again(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))  # noqa: T201
