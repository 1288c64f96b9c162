"""A vertical server's requests to its parties, beside what an iteration needs.

It asks for embeddings anew where the table's are too old, for an evaluation, and for predictions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.protocol.messages import Outgoing, Update
from tacit.protocol.vertical import Request


class Requests:
    """The requests that are not answered yet, by party, in the order of their numbers.

    A party is told of its first one only, as it answers no number below its last. made: how many
    there have been, and so the number of the newest.
    """

    def __init__(self) -> None:
        self.made = 0
        self.open: dict[str, list[Request]] = {}

    def ask(self, edge: str, rows: Tensor) -> Outgoing:
        """Add a request for embeddings of `rows`; return the one that `edge` is to answer."""
        self.made += 1
        self.open.setdefault(edge, []).append(Request(self.made, rows))
        return Outgoing(edge, self.open[edge][0])

    def next(self, edge: str) -> Request | None:
        """The request that `edge` is to answer now, if there is one."""
        asked = self.open.get(edge)
        if asked:
            return asked[0]
        return None

    def close(self, edge: str, number: int | None = None) -> set[int]:
        """Forget what `edge` was asked for, or only request `number`.

        It is answered, or will not be. Returns the numbers that were open.
        """
        asked = self.open.get(edge, [])
        gone = {one.number for one in asked if number in (None, one.number)}
        self.open[edge] = [one for one in asked if one.number not in gone]
        return gone

    def waiting(self) -> set[str]:
        """Parties that have not answered all they were asked for."""
        return {edge for edge, asked in self.open.items() if asked}

    def awaits(self, update: Update) -> bool:
        """Whether `update` answers an open request of its party, for the very same rows."""
        part = update.part
        asked = self.open.get(update.edge, [])
        return part is not None and any(
            one.number == part.request and torch.equal(one.rows, part.rows) for one in asked
        )
