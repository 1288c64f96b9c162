"""What an owner's page asks of a member: offers, answers, the ledger, what has left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tacit.errors import ConfigError
from tacit.privacy.accounting import History, merged
from tacit_services.member import answering, run_spending
from tacit_services.member.look_record import note_shown, record_in
from tacit_services.member.member_state import MemberState
from tacit_services.member.run_spending import RunSpending
from tacit_services.member.what_left import LeftMessages
from tacit_services.transport.json_numbers import finite


class StaleOfferError(ConfigError):
    """An answer to an offer that is not the newest of its run."""


class OwnerDesk:
    """What the page asks of a member's folder and its data's ledger; it changes answers alone."""

    def __init__(self, state: MemberState, home: Path) -> None:
        """home: the user's data folder, where ledgers are."""
        self._state = state
        self._home = home
        self._left: dict[str, LeftMessages] = {}  # by run
        self._costs: dict[tuple[str, int, float, float | None], RunSpending] = {}

    def me(self) -> dict[str, Any]:
        """Return who this member is, and at which host."""
        member = self._state.membership()
        assert member is not None
        return {
            "name": member.name,
            "member": member.member,
            "host": member.url,
            "data": member.data,
            "dataset": member.dataset,
            "policy": member.policy,
        }

    def offers(self) -> list[dict[str, Any]]:
        """Return every offer that has come, how it stands, and what its run has spent so far."""
        spent = self._histories()
        rows = []
        for row in answering.listed(self._state):
            record = record_in(self._state.run(row["run"]))
            promise = None if record is None else record.promise
            cost = None
            if promise is not None:
                history = spent.get(row["fingerprint"], ())
                cost = self._cost(row["fingerprint"], history, promise.delta, promise.budget)
            rows.append(row | {"works": self._state.works_on(row["run"]), "cost": cost})
        return rows

    def offer(self, run: str) -> dict[str, Any]:
        """Return what the owner is to read of an offer; it counts as shown. Raises KeyError."""
        record = record_in(self._folder(run))
        if record is None:
            raise KeyError(run)
        note_shown(self._folder(run), record)
        return {
            "run": run,
            "fingerprint": record.fingerprint,
            "reason": record.reason,
            "sections": [
                {
                    "title": title,
                    "rows": [{"label": label, "words": words} for label, words in rows],
                }
                for title, rows in record.sections
            ],
        }

    def decide(self, run: str, action: str, fingerprint: str) -> str:
        """Enter an owner's answer; returns what to tell.

        What was accepted is taken back also after another offer has come. Raises StaleOfferError
        where another answer is to another offer, ConfigError, KeyError.
        """
        record = record_in(self._folder(run))
        if record is None:
            raise KeyError(run)
        if action != "withdraw":
            if record.fingerprint != fingerprint:
                raise StaleOfferError(f"run {run}: another offer has come since; read it first")
            note_shown(self._folder(run), record)  # one that comes from here on is not accepted
        return answering.ACTIONS[action](self._state, run, False)

    def ledger(self) -> dict[str, Any]:
        """Return what the data has spent: by run, and over its life."""
        member = self._state.membership()
        assert member is not None
        names = {row["fingerprint"]: row["run"] for row in answering.listed(self._state)}
        spent = self._histories()
        delta = run_spending.DELTA
        whole = merged(spend for history in spent.values() for spend in history)
        return {
            "dataset": member.dataset,
            "delta": delta,
            "life": self._cost("life", whole, delta, None),
            "runs": [
                {"run": names.get(fingerprint), "fingerprint": fingerprint or None}
                | self._cost(fingerprint, history, delta, None)
                for fingerprint, history in spent.items()
            ],
        }

    def departures(self) -> list[dict[str, Any]]:
        """Return what has left in each run: totals, and the latest messages."""
        rows = []
        for folder in sorted((self._state.folder / "runs").glob("*/")):
            messages = self._left.setdefault(folder.name, LeftMessages(folder))
            rows.append({"run": folder.name} | messages.document())
        return rows

    def _folder(self, run: str) -> Path:
        return self._state.folder / "runs" / run

    def _histories(self) -> dict[str, History]:
        member = self._state.membership()
        assert member is not None
        return run_spending.histories(member.dataset, self._home)

    def _cost(
        self, what: str, history: History, delta: float, budget: float | None
    ) -> dict[str, Any]:
        """Return releases, ε, δ and budget; ε is added up once for each number of releases."""
        count = sum(spend.count for spend in history)
        key = (what, count, delta, budget)
        if key not in self._costs:
            self._costs[key] = run_spending.spending(history, delta, budget)
        cost = self._costs[key]
        content = {
            "releases": cost.releases,
            "epsilon": cost.epsilon,
            "delta": cost.delta,
            "budget": cost.budget,
        }
        shown: dict[str, Any] = finite(content)
        return shown
