"""Whether a rule of local steps sees nothing but what it is given.

Its steps are recorded beside private rows, and taken again by `python -m` of this module, a process
that has none.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from tacit.algorithms.own.own_steps import LocalRule, OwnStepsTask
from tacit_services.python_child import command

_SECONDS = 300.0


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


def differs(task: OwnStepsTask, folder: Path, steps: list[RuleStep], place: Path) -> str:
    """Take the recorded steps of one edge again in a process without rows; return what differs.

    place: a folder for what the process reads. Returns "" where nothing differs.
    """
    tensors: dict[str, Tensor] = {"numbers": torch.tensor([step.number for step in steps])}
    for at, step in enumerate(steps):
        tensors |= {f"{at}/{part}": given for part, given in enumerate((*step.given, step.gave))}
    safetensors.torch.save_file(tensors, place / "steps.safetensors")
    (place / "task.json").write_text(task.model_dump_json())
    child = subprocess.run(
        command("tacit_services.conformance.rule", str(folder.resolve()), str(place)),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    return child.stdout.strip() if child.returncode == 0 else child.stderr.strip()[-300:]


def _again(folder: Path, place: Path) -> Iterator[str]:
    """Yield a sentence for the first step that differs."""
    rule = OwnStepsTask.model_validate_json((place / "task.json").read_text()).rule(folder)
    tensors = safetensors.torch.load_file(place / "steps.safetensors")
    for at, number in enumerate(tensors["numbers"].tolist()):
        params, gradient, start, gave = (tensors[f"{at}/{part}"] for part in range(4))
        if not torch.equal(rule.step(params, gradient, start, number), gave):
            yield f"step {at} of the rule differs in a process without rows"
            return


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in _again(Path(sys.argv[1]), Path(sys.argv[2])):
        print(line)  # noqa: T201 - the parent reads it
