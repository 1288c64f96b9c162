"""A worker's watch on what it may work by, its owner's consent first: when that ends, so does it.

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
PAUSED = 75  # a worker's exit code: it may not work now, and is begun again when it may
_PERIOD = 0.5  # seconds between two looks
_PATIENCE = 8.0  # seconds for an orderly end
_KILLED = 137  # the exit code of a process that was killed: its member starts it again


class ConsentWatch:
    """A thread that ends this process when its owner's consent to `offer` holds no more.

    It does so for other reasons that it is told, too. Guarantee: _PERIOD after a withdrawal is on
    disk, or there is another reason, the process has begun to end, and _PATIENCE later there is
    none. So it is where the answers cannot be read.
    """

    def __init__(
        self,
        state: MemberState,
        offer: Offer,
        forbids: Callable[[], str | None] = lambda: None,
        end: Callable[[], None] = lambda: signal.raise_signal(signal.SIGTERM),
        kill: Callable[[], None] = lambda: os._exit(_KILLED),
        period: float = _PERIOD,
        patience: float = _PATIENCE,
    ) -> None:
        """forbids: why this process may not work now, besides its owner's consent; None: it may.

        end, kill: end this process, in order or at once. period, patience: in seconds.
        """
        self._state = state
        self._offer = offer
        self._forbids = forbids
        self._end = end
        self._kill = kill
        self._period = period
        self._patience = patience
        self.ended = False
        self._thread = threading.Thread(target=self._watch, name="consent", daemon=True)

    def start(self) -> None:
        """Watch from now on."""
        self._thread.start()

    def _watch(self) -> None:
        pause = threading.Event()
        while (why := self._against()) is None:
            pause.wait(self._period)
        log.warning("run %s: %s", self._offer.run, why)
        self.ended = True
        self._end()
        pause.wait(self._patience)
        self._kill()

    def _against(self) -> str | None:
        """Return why this process may work no more; None: it may."""
        try:
            consent = self._state.consents().to(self._offer)
        except PrivacyError as error:
            return str(error)
        if consent is None or not consent.holds:
            return "its owner's consent has ended"
        return self._forbids()
