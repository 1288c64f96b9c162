"""A bounded number of places, of which no address has more than its part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.exceptions import HTTPException


class ConnectionSlots:
    """The connections that are open, for one thread."""

    def __init__(self, total: int, each: int) -> None:
        """`total` places; `each` of them at most for one address."""
        self.total = total
        self.each = each
        self._in_use: Counter[str] = Counter()

    @contextmanager
    def taken(self, address: str) -> Iterator[None]:
        """Hold a place until the end of the block. Raises HTTPException (503): none is free."""
        if self._in_use.total() >= self.total or self._in_use[address] >= self.each:
            raise HTTPException(503, self._full(), {"Retry-After": "5"})
        self._in_use[address] += 1
        try:
            yield
        finally:
            self._in_use[address] -= 1
            if not self._in_use[address]:
                del self._in_use[address]

    def _full(self) -> str:
        return f"{self.total} at a time, {self.each} for one address; try again later"
