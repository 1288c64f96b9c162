"""How two JSON values differ, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

CLOSE = (
    1e-9  # relative: what numbers may differ by where the processor has a say in their last digits
)
SHOWN = 80  # characters of a value
ABSENT = "absent"


def differences(was: Any, now: Any, name: str, *, exact: bool = True) -> Iterator[str]:
    """Yield one line for each place where `now` differs from `was`.

    exact: if False, numbers may be close, also as text.
    """
    if isinstance(was, dict) and isinstance(now, dict):
        for key in [*was, *(key for key in now if key not in was)]:
            inner = f"{name}: {key}"
            if key not in now or key not in was:
                yield (
                    f"{inner}: was {_shown(was.get(key, ABSENT))}, is "
                    f"{_shown(now.get(key, ABSENT))}"
                )
            else:
                yield from differences(was[key], now[key], inner, exact=exact)
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for number, (before, after) in enumerate(zip(was, now, strict=True)):
            yield from differences(before, after, f"{name}: {number}", exact=exact)
    elif was != now and (exact or not _close(was, now)):
        yield f"{name}: was {_shown(was)}, is {_shown(now)}"


def _close(was: Any, now: Any) -> bool:
    try:
        return math.isclose(float(was), float(now), rel_tol=CLOSE)
    except (TypeError, ValueError):
        return False


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"
