"""What is no refusal: the same bytes may come again later."""

from __future__ import annotations


class RetryLater(Exception):  # noqa: N818  (a state: there is room again later)
    """A message is not taken now. It is `counted` so, and may come again in `retry_after_s`."""

    def __init__(self, counted: str, retry_after_s: float) -> None:
        super().__init__(f"{counted}: again in {retry_after_s:.3g} s")
        self.counted, self.retry_after_s = counted, retry_after_s
