"""A worker's watch on the consent that it works by: when that ends, so does the process.

The member that has started the worker ends it, too. But that may be busy: with a question to its
owner, with rows, or with a host that answers slowly.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable

from tacit.errors import PrivacyError
from tacit_services.member.member_state import MemberState
from tacit_services.offers.offer import Offer

log = logging.getLogger("tacit.member")
_PERIOD = 0.5  # seconds between two looks
_PATIENCE = 8.0  # seconds for an orderly end


class ConsentWatch:
    """A thread that ends this process when its owner's consent to `offer` holds no more.

    Guarantee: _PERIOD after a withdrawal is on disk the process has begun to end, and _PATIENCE
    later there is none. So it is where the answers cannot be read.
    """

    def __init__(
        self,
        state: MemberState,
        offer: Offer,
        send: Callable[[int], None] = lambda number: os.kill(os.getpid(), number),
        period: float = _PERIOD,
        patience: float = _PATIENCE,
    ) -> None:
        """send: sends this process a signal. period, patience: in seconds."""
        self._state = state
        self._offer = offer
        self._send = send
        self._period = period
        self._patience = patience
        self._thread = threading.Thread(target=self._watch, name="consent", daemon=True)

    def start(self) -> None:
        """Watch from now on."""
        self._thread.start()

    def _watch(self) -> None:
        pause = threading.Event()
        while self._holds():
            pause.wait(self._period)
        log.warning("run %s: its owner's consent has ended", self._offer.run)
        self._send(signal.SIGTERM)
        pause.wait(self._patience)
        self._send(signal.SIGKILL)

    def _holds(self) -> bool:
        try:
            consent = self._state.consents().to(self._offer)
        except PrivacyError as error:
            log.warning("%s", error)
            return False
        return consent is not None and consent.holds
