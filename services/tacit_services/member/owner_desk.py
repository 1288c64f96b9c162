"""What an owner's page asks of a member: offers, answers, the ledger, what has left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tacit.errors import PrivacyError
from tacit.privacy.accounting import History, merged
from tacit_services.identity.ledger_loan import UNBOUND, LifetimeBound
from tacit_services.member import answering, run_spending
from tacit_services.member.answering import AnswerRefused, CostsChanged, OwnerAnswers
from tacit_services.member.cost_words import ADDING_UP, bound_parts
from tacit_services.member.data_account import DataAccount
from tacit_services.member.look_record import LastShown, note_shown, record_in
from tacit_services.member.member_state import Membership, MemberState
from tacit_services.member.promises import promised
from tacit_services.member.report_making import ReportMaking
from tacit_services.member.run_cost import account_share
from tacit_services.member.run_spending import RunSpending
from tacit_services.member.what_left import LeftMessages
from tacit_services.transport.json_numbers import finite

_WITH_MODEL = ("ended", "stopped")  # runs that may have one
_STAYS = (
    "Nothing leaves from now on. What has left stays with the host, and what it cost stays spent"
)


class StaleOfferError(AnswerRefused):
    """An answer to an offer that is not the newest of its run."""


class OwnerDesk:
    """What the page asks of a member's folder and its data's ledger; it changes answers alone."""

    def __init__(self, state: MemberState, home: Path, bound: LifetimeBound = UNBOUND) -> None:
        """home: the user's data folder, where ledgers are. bound: the owner's, on the data."""
        self._state = state
        self._home = home
        self._bound = bound
        self._answers = OwnerAnswers(state, home)
        self._reports = ReportMaking(state.folder)
        self._left: dict[str, LeftMessages] = {}  # by run
        self._costs: dict[tuple[str, int, float, float | None], RunSpending] = {}

    def me(self) -> dict[str, Any]:
        """Return who this member is, and at which host."""
        member = self._membership()
        return {
            "name": member.name,
            "member": member.member,
            "host": member.url,
            "data": member.data,
            "dataset": member.dataset,
            "policy": member.policy,
        }

    def offers(self) -> list[dict[str, Any]]:
        """Return every offer that has come, how it stands, and what its run has spent so far.

        looks: whether the member looks at it at this moment. most: the ε that ends its run.
        reports: whether a report on it can be made.
        """
        spent = self._account().runs
        looked_at = self._state.looked_at_now()
        rows = []
        for standing in answering.standings(self._state):
            promise = None
            record = record_in(self._state.run(standing.run))
            if record is not None and standing.took_part:
                promise = record.charged
            cost = None
            if promise is not None:
                history = spent.get(standing.fingerprint, ())
                cost = self._cost(standing.fingerprint, history, promise.delta, promise.budget)
            row = standing.document(standing.diary.spent)
            del row["spent"]
            most = None if record is None or record.promise is None else record.promise.budget
            row |= {"works": self._state.works_on(standing.run), "cost": cost, "most": most}
            row["reports"] = standing.took_part and standing.state in _WITH_MODEL
            rows.append(row | {"looks": standing.run in looked_at})
        others = set(looked_at) - {row["run"] for row in rows}
        return rows + [_on_its_way(run) for run in sorted(others)]

    def offer(self, run: str) -> dict[str, Any]:
        """Return what the owner is to read of an offer now; it counts as shown. Raises KeyError.

        costs: what an answer must name that accepts it. Raises ConfigError, PrivacyError.
        """
        self._require(run)
        now = self._answers.show(run)
        return {
            "run": run,
            "fingerprint": now.standing.fingerprint,
            "researcher": now.standing.researcher,
            "answer": now.standing.answer,
            "state": now.standing.state,
            "actions": list(now.actions),
            "reason": now.standing.reason,
            "costs": now.costs,
            "in_short": now.short,
            "sections": [
                {
                    "title": title,
                    "rows": [{"label": label, "words": words} for label, words in rows],
                }
                for title, rows in now.sections
            ],
        }

    def decide(self, run: str, action: str, fingerprint: str, costs: str | None = None) -> str:
        """Enter an owner's answer; returns what to tell.

        costs: what `offer` has called them, of an offer that is accepted. What was accepted is
        taken back also after another offer has come. Raises StaleOfferError where another answer is
        to another offer, CostsChanged where an offer costs something else by now, AnswerRefused,
        ConfigError, PrivacyError, KeyError.
        """
        newest = self._require(run)
        if action == "withdraw":
            if self._answers.withdraw(run):
                return f"{run}: withdrawn. {_STAYS}"
            return f"{run}: withdrawn. The process that works on it is ending; nothing more begins"
        if newest != fingerprint:
            raise StaleOfferError(f"{run}: another offer has come since; read it first")
        if action == "accept":
            if costs is None:
                raise CostsChanged(f"{run}: costs: missing; name those that were shown")
            # One that comes from here on is not accepted, nor one that costs something else.
            note_shown(self._state.run(run), LastShown(fingerprint, costs))
            self._answers.accept(run)
            return f"{run}: accepted. You may withdraw at any time"
        if action == "decline":
            self._answers.decline(run)
            return f"{run}: declined. Nothing leaves"
        self._answers.confirm(run)
        return f"{run}: the key is confirmed. The offer is looked at anew"

    def ledger(self) -> dict[str, Any]:
        """Return what the data has spent: by run, over its life, and of the owner's bound."""
        member = self._membership()
        standings = {row.fingerprint: row for row in answering.standings(self._state)}
        account = self._account()
        delta = run_spending.DELTA
        runs = []
        for fingerprint, history in account.runs.items():
            standing = standings.get(fingerprint)
            record = None if standing is None else record_in(self._state.run(standing.run))
            promise = None if record is None else record.charged
            terms = (delta, None) if promise is None else (promise.delta, promise.budget)
            runs.append(
                {
                    "run": None if standing is None else standing.run,
                    "fingerprint": fingerprint or None,
                    "researcher": None if standing is None else standing.researcher,
                    "began": None if standing is None else standing.diary.began,
                    "ended": None if standing is None else standing.diary.ended,
                }
                | self._cost(fingerprint, history, *terms)
            )
        return {
            "dataset": member.dataset,
            "delta": delta,
            "life": self._cost("life", account.whole, delta, None),
            "lifetime": self._lifetime(account),
            "runs": runs,
        }

    def departures(self) -> list[dict[str, Any]]:
        """Return what has left in each run: totals, and the latest messages."""
        folders = sorted((self._state.folder / "runs").glob("*/"))
        return [{"run": folder.name} | self._messages(folder).document() for folder in folders]

    def earlier(self, run: str, before: int) -> list[dict[str, Any]]:
        """Return the messages of a run that have left before number `before`, the latest of them.

        Raises KeyError, OSError.
        """
        folder = self._state.folder / "runs" / run
        if not folder.is_dir():
            raise KeyError(run)
        return self._messages(folder).earlier(before)

    def report(self, run: str) -> dict[str, Any]:
        """Return how the report on a run stands, with its figures. Raises KeyError."""
        self._require(run)
        return self._reports.of(run).document()

    def make_report(self, run: str) -> dict[str, Any]:
        """Begin to make the report on a run; returns how it stands.

        Raises AnswerRefused while another is being made, KeyError.
        """
        self._require(run)
        return self._reports.begin(run).document()

    def close(self) -> None:
        """End what makes a report, if one is being made. Idempotent."""
        self._reports.close()

    def _messages(self, folder: Path) -> LeftMessages:
        return self._left.setdefault(folder.name, LeftMessages(folder))

    def _require(self, run: str) -> str:
        """Return the fingerprint of a run's offer. Raises KeyError where none has come."""
        record = record_in(self._state.folder / "runs" / run)
        if record is None:
            raise KeyError(run)
        return record.fingerprint

    def _membership(self) -> Membership:
        member = self._state.membership()
        assert member is not None
        return member

    def _account(self) -> DataAccount:
        return DataAccount.of((self._membership().dataset,), self._home)

    def _lifetime(self, account: DataAccount) -> dict[str, Any] | None:
        """Return what is spent, promised and left of the owner's bound, in hundredths.

        None: there is none.
        """
        bound = self._bound
        if bound.epsilon is None:
            return None
        content = {"epsilon": bound.epsilon, "delta": bound.delta, "words": ADDING_UP}
        others = promised(self._state, None, self._home)
        try:
            lifetime = account.lifetime(bound)
        except PrivacyError:  # at the ledger's order it pays for nothing
            return content | {"spent": 100, "promised": 0, "left": 0, "runs": sorted(others)}
        assert lifetime is not None
        share = account_share(lifetime, account.whole, others)
        return content | bound_parts(share) | {"runs": sorted(others)}

    def _cost(
        self, what: str, history: History, delta: float, budget: float | None
    ) -> dict[str, Any]:
        """Return releases, ε, δ and budget; ε is added up once for each number of releases."""
        count = sum(spend.count for spend in history)
        key = (what, count, delta, budget)
        if key not in self._costs:
            self._costs[key] = run_spending.spending(merged(history), delta, budget)
        cost = self._costs[key]
        content = {
            "releases": cost.releases,
            "epsilon": cost.epsilon,
            "delta": cost.delta,
            "budget": cost.budget,
        }
        document: dict[str, Any] = finite(content)
        return document


def _on_its_way(run: str) -> dict[str, Any]:
    """Return an offer of which nothing is known yet: the member looks at it for the first time."""
    return {"run": run, "answer": "is looked at", "actions": [], "looks": True}
