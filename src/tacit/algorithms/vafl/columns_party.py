"""A party of own columns: a person that it lacks is a blank, so nobody learns whom it has."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.algorithms.vafl.party import Party
from tacit.datasets.alignment import BLANK, align_or_blank
from tacit.errors import DataError
from tacit.protocol.vertical import Roster


class ColumnsParty(Party):
    """A party that releases a noisy blank, the embedding 0, of each person that it does not have.

    Guarantee: what is released is as long, and costs as much, for any people that this party has.
    A person's columns may be replaced by a blank or by any other columns: the noise hides either.
    """

    def _aligned(self, roster: Roster) -> NDArray[np.int64]:
        """Return the place of each roster row, BLANK where this party has none.

        Its private file has those that are trained on, and its public file those that are tested
        on. So nobody else's word makes a person public.
        Raises DataError where not one person of its private file is in the run.
        """
        assert self.private is not None
        trained, tested = np.split(roster.names, [roster.records])
        private, public = np.split(self._names, [self.private])
        place = align_or_blank(trained, private, self.edge)
        if (place == BLANK).all():
            raise DataError(
                f"{self.edge}: none of the run's {roster.records} people is among its "
                f"{self.private}: its key column has other ids, or TACIT_SALT is not the one of "
                "the label holder"
            )
        tests = align_or_blank(tested, public, self.edge)
        everybody = np.concatenate([place, np.where(tests == BLANK, BLANK, tests + self.private)])
        if len(np.unique(roster.names)) != len(everybody):
            raise DataError(f"{self.edge}: the run's roster trains on people that it tests on")
        return everybody

    def _embed(self, theta: Tensor, rows: Tensor) -> Tensor:
        assert self.place is not None  # there is no step before the roster
        here = (self.place[rows] != BLANK)[:, None]
        return torch.where(here, super()._embed(theta, rows), 0.0)
