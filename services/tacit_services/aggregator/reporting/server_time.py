"""The server's time, as events and evaluations have it: for people, and for no decision."""

from __future__ import annotations

import time


def server_time() -> str:
    """Return the time in UTC, to a thousandth of a second.

    >>> len(server_time()), server_time()[-1]
    (24, 'Z')
    """
    seconds, thousandths = divmod(int(time.time() * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{thousandths:03d}Z"
