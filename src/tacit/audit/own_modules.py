"""The audit's test A for users' own modules, whose rows are computed by their graphs.

The modules compute what the audit's narrow network computes. So the same worlds attack them. One of
them is trusted code, which raises where its hidden unit is `POLE`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tacit.audit.message_attacks import against, compared
from tacit.audit.statistics import Finding
from tacit.audit.subject import ROWS, Randomness, Subject
from tacit.audit.worlds import MessageSource, World, opposed_world
from tacit.datasets import Dataset
from tacit.models import Model
from tacit.models.losses import cross_entropy
from tacit.models.module import module_model

POLE = 3.0


class Gated(nn.Module):
    """One hidden unit, by an operation that is no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(2, 1)
        self.head = nn.Linear(1, 2)
        nn.init.constant_(self.enter.weight, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (B, 2)."""
        scores: Tensor = self.head(self.hidden(self.enter(x.flatten(1))))
        return scores

    def hidden(self, unit: Tensor) -> Tensor:
        """Return the unit (B, 1), or 0 where it is negative."""
        return torch.where(unit > 0, unit, 0.0)


class Raising(Gated):
    """The same, in code that raises at POLE, which the rows' owners trust."""

    def hidden(self, unit: Tensor) -> Tensor:
        """Return the unit (B, 1), or 0 where it is negative; raises at POLE."""
        if bool((unit == POLE).any()):
            raise ArithmeticError("at the pole")
        return super().hidden(unit)


class RecurrentUnit(nn.Module):
    """One recurrent unit and a head.

    torch cannot map such a unit over rows, so each row goes through the module's graph by itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unit = nn.RNN(2, 1, batch_first=True)
        self.head = nn.Linear(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (B, 2) of rows that are sequences of one step."""
        states, _ = self.unit(x.flatten(1).unsqueeze(1))
        scores: Tensor = self.head(states[:, -1])
        return scores


def model_of(kind: type[nn.Module]) -> Model:
    """Return the module as a model of a run."""
    return module_model(
        "audit", kind, shape=(1, 1, 2), outputs=2, loss=cross_entropy, trusted=kind is Raising
    )


def own_module(subject: Subject, source: Randomness, pushes: int) -> list[Finding]:
    """Run `against` where the rows' gradients are a user's own module's (A)."""
    return against(subject.but(model=model_of(Gated)), source, pushes, "own module")


def raising(subject: Subject, source: Randomness, pushes: int) -> list[Finding]:
    """Bound what one message shows of a record that the module raises at (A).

    All other rows have gradients. A message that does not come is an alarm.
    """
    subject = subject.but(model=model_of(Raising), most=ROWS)
    world = _raising_world()
    try:
        inside, outside = (
            (
                MessageSource(subject, source, world, canary=included).vectors(pushes)
                @ world.direction
            ).numpy()
            for included in (True, False)
        )
    except ArithmeticError:  # of the record
        return [Finding("own module raises", subject.name, "messages", 0, 1, True, subject.honest)]
    return compared("own module raises", subject, inside, outside)


def _raising_world() -> World:
    """Return the opposed world, with a record at the pole.

    The direction is against the others' gradient: messages go there if the record takes that away.
    """
    opposed = opposed_world()
    record = Dataset(POLE * opposed.rows.x[:1], opposed.rows.y[:1], 2, "audit")
    # Of the wrong answer 1: by W1 (1, 2), b1, W2 (2, 1), b2.
    gradient = torch.tensor([-1.0, 0.0, -1.0, -1.0, 1.0, -1.0, 1.0], dtype=torch.float64)
    return World(opposed.params, opposed.rows, record, -gradient / gradient.norm())
