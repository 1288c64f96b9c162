"""The mean of the models of a run's last part: `run.average`.

    a    average: the part of the run, from its end, that counts
    T    horizon: `run.updates`
    x_t  the model of version t

A run may end early, so its last part is not known while it goes on. The means therefore begin at
marks, T·(1-a)^k for k = 1, 2, …, rounded down. Two means are held: since the newest mark and since
the mark before it. `mean` returns the one that begins at the newest mark that is at most (1-a)·t.

Guarantee. At t = T the mean is of x_t with t > (1-a)·T, exactly. At an earlier end it is of at
least the last part a, and of at most the last 1-(1-a)² of the run. It is a function of the models
in their order, so that a replay has the same bits. Nothing is ever written into a tensor that was
returned.

Privacy. A mean of models that were sent to the edges is post-processing: it costs no ε.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor


class RunningMean:
    """The mean of the models since version `since`."""

    def __init__(self, since: int, count: int = 0, mean: Tensor | None = None) -> None:
        self.since = since
        self.count = count
        self.mean = mean

    def add(self, params: Tensor) -> None:
        """Take in the next model."""
        self.count += 1
        if self.mean is None:
            self.mean = params
        else:
            self.mean = self.mean + (params - self.mean) / self.count


def _restored(name: str, tensors: dict[str, Tensor], values: dict[str, Any]) -> RunningMean:
    since = values[name][0]
    count = values[name][1]
    return RunningMean(since, count, tensors.get(name))


class ModelAverage:
    """The mean of the models of the last part of a run.

    >>> import torch
    >>> average = ModelAverage(0.5, 8)
    >>> for version in range(1, 9):
    ...     average.add(version, torch.tensor([float(version)]))
    >>> average.mean(), average.since  # of versions 5, 6, 7 and 8
    (tensor([6.5000]), 4)
    """

    def __init__(self, part: float, horizon: int) -> None:
        """part: a, in (0, 1). horizon: T."""
        self._part = part
        self._horizon = horizon
        self._version = 0
        self._earlier = RunningMean(0)
        self._later = RunningMean(0)
        self._next = self._mark_after(0)

    def add(self, version: int, params: Tensor) -> None:
        """Take in the model of `version`; one that is not new changes nothing."""
        if version <= self._version:
            return
        self._version = version
        while version > self._next < self._horizon:
            self._earlier = self._later
            self._later = RunningMean(self._next)
            self._next = self._mark_after(self._next)
        self._earlier.add(params)
        if self._later is not self._earlier:
            self._later.add(params)

    @property
    def since(self) -> int:
        """The version after which the mean begins."""
        return self._chosen().since

    def mean(self) -> Tensor | None:
        """Return the mean (d,); None: there is no model yet."""
        return self._chosen().mean

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return (tensors, JSON values) from which `restore` continues to the same bits."""
        means = {"average.earlier": self._earlier, "average.later": self._later}
        tensors = {name: each.mean for name, each in means.items() if each.mean is not None}
        values = {name: [each.since, each.count] for name, each in means.items()}
        return tensors, {"version": self._version, "next": self._next, **values}

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self._version = values["version"]
        self._next = values["next"]
        self._earlier = _restored("average.earlier", tensors, values)
        self._later = _restored("average.later", tensors, values)
        if self._earlier.since == self._later.since:
            self._later = self._earlier

    def _chosen(self) -> RunningMean:
        if self._later.since <= (1 - self._part) * self._version:
            return self._later
        return self._earlier

    def _mark_after(self, mark: int) -> int:
        """Return the first mark after `mark`; T where there is none."""
        following = self._horizon
        place = self._horizon * (1 - self._part)
        while int(place) > mark:
            following = int(place)
            place *= 1 - self._part
        return following
