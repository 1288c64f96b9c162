"""How many messages a second each store takes: `python -m tacit_lab.bench.stores URL URL…`.

All take turns of a batch each, so that other work on the machine is shared by all. An append is one
call of one edge, and durable when it returns. Prints, for each size and count of messages in a
call, the median time of a call, and the rate over that of the first store. The run `bench` of each
place is emptied first.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from contextlib import ExitStack

from tacit_services.journal.store import NewEntry, Snapshot, Store, open_store

FINGERPRINT = "0" * 64
CALLS = 60
SHAPES = ((90_000, 1), (90_000, 16), (45_000_000, 1))  # bytes of a message, messages in a call


def main() -> None:
    """Measure the stores of the command line."""
    with ExitStack() as stack:
        stores = dict[str, Store]()
        for url in sys.argv[1:]:
            store = open_store(url, "bench")
            stack.callback(store.close)
            store.open(FINGERPRINT)
            store.empty(FINGERPRINT)
            store.open(FINGERPRINT)
            stores[url.partition(":")[0]] = store
        for size, count in SHAPES:
            calls = CALLS if size < 1 << 20 else CALLS // 10
            durations = _measured(stores, size, count, calls)
            first = next(iter(durations.values()))
            for name, seconds in durations.items():
                print(
                    f"{size:>10} bytes x {count:<3} {name:<12} {1000 * seconds:8.2f} ms "
                    f"{first / seconds:5.2f}"
                )


def _measured(stores: dict[str, Store], size: int, count: int, calls: int) -> dict[str, float]:
    """Return the median seconds of a call by each store."""
    payload = os.urandom(size)
    durations: dict[str, list[float]] = {name: [] for name in stores}
    for _ in range(calls):
        for name, store in stores.items():
            last = store.last_seqs().get("edge-0", 0)
            batch = [NewEntry("edge-0", last + n, payload) for n in range(1, count + 1)]
            began = time.perf_counter()
            answers = store.append(batch)
            durations[name].append(time.perf_counter() - began)
            store.save(Snapshot(answers[-1].position, b""))
    return {name: statistics.median(each) for name, each in durations.items()}


if __name__ == "__main__":
    main()
