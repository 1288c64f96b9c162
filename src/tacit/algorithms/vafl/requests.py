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

    A party is told of its first one only, as it answers no number below its last. issued: how many
    there have been, and so the number of the newest.
    """

    def __init__(self) -> None:
        self.issued = 0
        self.open: dict[str, list[Request]] = {}

    def ask(self, edge: str, rows: Tensor) -> Outgoing:
        """Add a request for embeddings of `rows`; return the one that `edge` is to answer."""
        self.issued += 1
        self.open.setdefault(edge, []).append(Request(self.issued, rows))
        return Outgoing(edge, self.open[edge][0])

    def next(self, edge: str) -> Request | None:
        """Return the request that `edge` is to answer now; None where there is none."""
        queue = self.open.get(edge)
        if queue:
            return queue[0]
        return None

    def close(self, edge: str, number: int | None = None) -> set[int]:
        """Forget what `edge` was asked for, or only request `number`.

        It is answered, or will not be. Returns the numbers that were open.
        """
        queue = self.open.get(edge, [])
        closed = {request.number for request in queue if number in (None, request.number)}
        self.open[edge] = [request for request in queue if request.number not in closed]
        return closed

    def waiting(self) -> set[str]:
        """Return parties that have not answered all they were asked for."""
        return {edge for edge, queue in self.open.items() if queue}

    def awaits(self, update: Update) -> bool:
        """Check whether `update` answers an open request of its party, for the very same rows."""
        part = update.part
        queue = self.open.get(update.edge, [])
        return part is not None and any(
            request.number == part.request and torch.equal(request.rows, part.rows)
            for request in queue
        )
