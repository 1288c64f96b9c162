"""The answer "not now", which is no refusal: the same bytes may come again later."""

from __future__ import annotations


class RetryLater(Exception):  # noqa: N818  (a state: there is room again later)
    """A message cannot be accepted now; it may come again.

    counted: the counter's name for the reason. retry_after_s: seconds to wait.
    """

    def __init__(self, counted: str, retry_after_s: float) -> None:
        super().__init__(f"{counted}: again in {retry_after_s:.3g} s")
        self.counted, self.retry_after_s = counted, retry_after_s
