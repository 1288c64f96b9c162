"""A member's diary of a run, on disk: when it worked, how the run ended, what it has spent.

runs/RUN/diary.json   {"format": 1, "fingerprint", "began", "ended", "state", "spent"}

Times are in seconds since 1970. What is spent is of this member's data alone.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError, PrivacyError
from tacit_services.disk import json_record
from tacit_services.member import run_spending
from tacit_services.member.host_client import Offered
from tacit_services.member.look_record import record_in
from tacit_services.member.member_state import MemberState
from tacit_services.member.run_spending import RunSpending
from tacit_services.offers.submission import FILES

log = logging.getLogger("tacit.member")
FORMAT = 1
_FILE = "diary.json"


@dataclass(frozen=True, slots=True)
class RunDiary:
    """What a member has done in a run whose offer has this fingerprint.

    began: when it worked first, or None. ended: when its host said that it is over, and state: how,
    or None while it is not. spent: None, if the ledger was not asked, or could not say.
    """

    fingerprint: str
    began: float | None = None
    ended: float | None = None
    state: str | None = None
    spent: RunSpending | None = None

    def keep(self, folder: Path) -> None:
        """Write it into the run's folder, durably. Raises OSError."""
        json_record.write(folder / _FILE, FORMAT, asdict(self))


def diary_in(folder: Path) -> RunDiary | None:
    """Return the diary in a run's folder; None: there is none. Raises ConfigError."""
    return json_record.read(folder / _FILE, FORMAT, _diary)


def _diary(content: dict[str, Any]) -> RunDiary:
    spent = content.pop("spent")
    return RunDiary(**content, spent=None if spent is None else RunSpending(**spent))


def diary_of(folder: Path, fingerprint: str) -> RunDiary:
    """Return the diary of an offer in its run's folder; an empty one where there is none.

    Raises ConfigError.
    """
    diary = diary_in(folder)
    if diary is None or diary.fingerprint != fingerprint:
        return RunDiary(fingerprint)
    return diary


class RunDiaries:
    """The diaries of one membership, as its loop keeps them."""

    def __init__(
        self, state: MemberState, home: Path, clock: Callable[[], float] = time.time
    ) -> None:
        """home: the user's data folder, where the ledger is. clock: seconds since 1970."""
        self._state = state
        self._home = home
        self._clock = clock

    def begins(self, offered: Offered) -> None:
        """Note that the member works in a run from now on. Raises ConfigError for a full disk."""
        diary = self._of(offered)
        log.info("run %s: this member works in it from now on", offered.run)
        if diary.began is None or diary.state is not None:
            newest = replace(diary, began=diary.began or self._clock(), ended=None, state=None)
            self._keep(offered, newest)

    def ends(self, offered: Offered) -> None:
        """Note that a run is over, what it has spent here, and sweep its files. Idempotent.

        What was consented to stays: the offer itself, which names its files by their SHA-256.
        """
        if record_in(self._state.folder / "runs" / offered.run) is None:
            return
        diary = self._of(offered)
        if diary.state == offered.state:
            return
        spent = None if diary.began is None else self._spent(offered)
        self._keep(offered, replace(diary, ended=self._clock(), state=offered.state, spent=spent))
        shutil.rmtree(self._state.run(offered.run) / FILES, ignore_errors=True)
        if spent is None:
            log.info("run %s is over: %s", offered.run, offered.state)
        else:
            log.info(
                "run %s is over: %s; it has cost this data %s at δ %g, in %d releases",
                offered.run, offered.state, spent.words(), spent.delta, spent.releases,
            )  # fmt: skip

    def swept(self, offered: Offered) -> bool:
        """Return whether the files of a run were swept, as it was over. Raises ConfigError."""
        return self._of(offered).state is not None

    def _of(self, offered: Offered) -> RunDiary:
        return diary_of(self._state.run(offered.run), offered.fingerprint)

    def _keep(self, offered: Offered, diary: RunDiary) -> None:
        try:
            diary.keep(self._state.run(offered.run))
        except OSError as error:
            raise ConfigError(f"{error.filename}: {error.strerror or error}") from error

    def _spent(self, offered: Offered) -> RunSpending | None:
        membership = self._state.membership()
        record = record_in(self._state.run(offered.run))
        if membership is None or record is None or record.charged is None:
            return None
        try:
            spent = run_spending.histories(membership.dataset, self._home)
        except PrivacyError as error:
            log.warning("%s", error)
            return None
        history = spent.get(offered.fingerprint, ())
        return run_spending.spending(history, record.charged.delta, record.charged.budget)
