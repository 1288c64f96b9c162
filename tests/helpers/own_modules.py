"""Own modules that raise, remember or branch because of one row, and models that make them do so.

Rows have WIDTH numbers; the target's are `TARGET`. `tests/system/edge/test_own_modules.py` runs them in
real edges, for which this file is the run's own code.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH, INSIDE = 4, 3


class Solve(nn.Module):
    """Solves a diagonal system that its input makes: singular where one of `a`'s outputs is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, INSIDE), nn.Linear(WIDTH, INSIDE)
        self.head = nn.Linear(INSIDE, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (B, 2)."""
        return self.scores(x, torch.linalg.solve(torch.diag_embed(self.a(x)), self.b(x)))

    def scores(self, x: Tensor, solution: Tensor) -> Tensor:
        """Return the head's scores, to which all layers add something."""
        scores: Tensor = self.head(solution + self.a(x) + self.b(x))
        return scores


class Inverse(Solve):
    """The same by the inverse."""

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (B, 2)."""
        solution = torch.linalg.inv(torch.diag_embed(self.a(x))) @ self.b(x).unsqueeze(2)
        return self.scores(x, solution.squeeze(2))


class Root(Solve):
    """By Cholesky's roots, of a matrix that is not positive where an output of `a` is 0."""

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (B, 2)."""
        root = torch.linalg.cholesky(torch.diag_embed(self.a(x) ** 2))
        return self.scores(x, (root @ self.b(x).unsqueeze(2)).squeeze(2))


class Spectrum(Solve):
    """By eigenvalues, which no matrix with infinities has."""

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (B, 2)."""
        product = self.a(x).unsqueeze(2) * self.b(x).unsqueeze(1)
        matrix = product + product.transpose(1, 2) + torch.diag_embed(1 / self.a(x))
        return self.scores(x, torch.linalg.eig(matrix)[0].real)


class Coded(Solve):
    """Looks up a row of a table by a code that its input makes: none, where an output is large."""

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (B, 2)."""
        code = (1 / self.a(x).abs()).clamp(max=1e6).long()
        table = torch.ones(1000, device=x.device) * self.b.weight.sum()
        near = torch.where(code > 500_000, code, code % 1000)
        return self.scores(x, table[near] + self.b(x))


class Likely(Solve):
    """Compares with its own guess by binary cross-entropy, which takes no nan."""

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (B, 2)."""
        sure = torch.sigmoid(self.b(x) / self.a(x) * 0 + self.b(x))
        cost = nn.functional.binary_cross_entropy(sure, torch.ones_like(sure), reduction="none")
        return self.scores(x, cost)


class Halves(Solve):
    """Divides whole numbers."""

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (B, 2)."""
        quotient = torch.div(7, (self.a(x).abs() * 1e6).ceil().long(), rounding_mode="floor")
        return self.scores(x, self.b(x) + quotient)


RAISES: tuple[type[Solve], ...] = (Solve, Inverse, Root, Spectrum, Coded, Likely, Halves)


class Branching(Solve):
    """Does `strange` where an output of `a` is 0: another step for one row."""

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (B, 2)."""
        if (self.a(x) == 0).any():
            self.strange(x)
        return self.scores(x, self.b(x))

    def strange(self, x: Tensor) -> None:
        """Raise something."""
        raise ValueError(f"the row is {x.tolist()}")


class Asserts(Branching):
    """A user's own check."""

    def strange(self, x: Tensor) -> None:
        """Raise something."""
        raise AssertionError(x.tolist())


class Exits(Branching):
    """Ends the process, as a script does."""

    def strange(self, x: Tensor) -> None:
        """Raise something."""
        raise SystemExit(7)


class Interrupts(Branching):
    """Raises what Ctrl-C raises."""

    def strange(self, x: Tensor) -> None:
        """Raise something."""
        raise KeyboardInterrupt


class Recurs(Branching):
    """Never returns, until Python says so."""

    def strange(self, x: Tensor) -> None:
        """Raise something."""
        self.strange(x)


class Fills(Branching):
    """Asks for more memory than there is."""

    def strange(self, x: Tensor) -> None:
        """Raise something."""
        raise MemoryError


class Remembers(Branching):
    """Counts how deep it is, and is left before it counts back: later rows would find that."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (B, 2)."""
        scores = self.scores(x, self.b(x)) * (1 + len(self.seen))
        self.seen.append(0.0)
        if (self.a(x) == 0).any():
            raise ValueError
        self.seen.pop()
        return scores


BRANCHES: tuple[type[Branching], ...] = (
    *(Branching, Asserts, Exits, Interrupts, Recurs, Fills, Remembers),
)


class Ponder(nn.Module):
    """Adaptive computation time: one cell after another until the answer is sure, 300 at most."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.cell = nn.Linear(WIDTH, 8), nn.Linear(8, 8)
        self.sure, self.head = nn.Linear(WIDTH, 1), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (B, 2)."""
        state, remaining = torch.tanh(self.enter(x)), torch.ones(len(x), 1, device=x.device)
        sure, steps = torch.sigmoid(self.sure(x)), 0
        while steps < 300 and bool((remaining > 0).any()):
            state = torch.where(remaining > 0, torch.tanh(self.cell(state)), state)
            remaining, steps = torch.where(remaining > 0, remaining - sure, remaining), steps + 1
        scores: Tensor = self.head(state * (remaining + sure))
        return scores


def against(params: dict[str, Tensor], target: Tensor) -> None:
    """Make `a`'s first output exactly 0 for the row `target` (WIDTH,), and for no other here."""
    params["a.weight"].zero_()
    params["a.weight"][:, 0] = 1.0
    params["a.bias"].fill_(2.0)
    params["a.bias"][0] = -target[0]
