"""A process that is asked to end does, whatever its main thread is in the middle of."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest
from tacit_services import signals

from tests.helpers.servers import PATIENCE

# Where `Event.wait` is, the moment before it waits: it holds the event's lock.
IN_THE_MIDDLE = """
import signal
from tacit_services.signals import stopping

stop = stopping()
with stop._cond:
    signal.raise_signal(signal.{name})
    print("goes on")
print(stop.wait({patience}))
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_that_comes_within_a_wait_does_not_lock_the_process_up(name: str) -> None:
    code = IN_THE_MIDDLE.format(name=name, patience=PATIENCE)
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert completed.stdout.split("\n") == ["goes on", "True", ""]


def test_another_signal_sets_nothing_and_all_is_as_it_was_afterwards() -> None:
    before = {name: signal.getsignal(name) for name in signals.ENDS}
    stop = threading.Event()
    other = signal.signal(signal.SIGUSR1, lambda *_: None)
    undo = signals.watch(stop)
    try:
        signal.raise_signal(signal.SIGUSR1)
        [hears] = [thread for thread in threading.enumerate() if thread.name == "signals"]
    finally:
        undo()
        signal.signal(signal.SIGUSR1, other)
    hears.join(PATIENCE)
    assert not hears.is_alive()
    assert not stop.is_set()
    assert {name: signal.getsignal(name) for name in signals.ENDS} == before
    assert signal.set_wakeup_fd(-1) == -1
