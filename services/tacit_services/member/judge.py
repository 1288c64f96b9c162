"""The judge of offers at a member: fetched, looked at, shown, answered by policy or owner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tacit.errors import ConfigError
from tacit.privacy.policy import Policy
from tacit_services.disk import files
from tacit_services.member.current_costs import CurrentCosts
from tacit_services.member.host_client import HostClient, Offered
from tacit_services.member.look_record import LookRecord, forget_look
from tacit_services.member.member_state import MemberState
from tacit_services.member.verdict import PolicyWord
from tacit_services.member.working_hours import within
from tacit_services.offers.offer import OFFER, Offer
from tacit_services.offers.submission import FILES

MOST_FILES = 2 << 30  # bytes of all files of an offer


class Judge:
    """What a member does with an offer that has come."""

    def __init__(
        self,
        host: HostClient,
        state: MemberState,
        policy: Policy,
        ask: Callable[[Offer, LookRecord], None],
        home: Path,
        part: Path | None = None,
    ) -> None:
        """ask: asks an owner who is at the terminal, and returns at once.

        home: the user's data folder, where the ledger is. part: where the ledger of a
        part of published data is.
        """
        self._host = host
        self._state = state
        self._policy = policy
        self._ask = ask
        self._part = part
        self._costs = CurrentCosts(state, home)

    def may_work(self) -> bool:
        """Return whether the policy lets this member work at this hour, in local time."""
        return within(self._policy)

    def look(self, offered: Offered) -> LookRecord:
        """Fetch an offer and its files, judge it, and keep what comes of it.

        What the policy accepts is entered; where somebody is at the terminal, they are asked.
        Raises ServiceError where the host does not answer. Raises ConfigError and WireError for
        what is no offer, or another than the host's list names, or has no room on this disk.
        """
        try:
            with self._state.looking(offered.run):
                return self._looked_at(offered)
        except OSError as error:
            raise ConfigError(f"{error.filename}: {error.strerror or error}") from error

    def fetch(self, offered: Offered) -> None:
        """Fetch an offer that was consented to, and its files, once more. Raises as `look`."""
        try:
            self._fetched(offered, self._state.run(offered.run))
        except OSError as error:
            raise ConfigError(f"{error.filename}: {error.strerror or error}") from error

    def _looked_at(self, offered: Offered) -> LookRecord:
        folder = self._state.run(offered.run)
        offer = self._fetched(offered, folder)
        # With torch, for which a member need not wait that is shown no offer.
        from tacit_services.member.look_at_offer import looked_at

        record = looked_at(self._state, offer, self._policy, self._part)
        if record.answer == PolicyWord.ACCEPT.value:
            self._accept(offer, record)
        elif record.answer == PolicyWord.ASK.value:
            self._ask(offer, record)
        return record

    def _accept(self, offer: Offer, record: LookRecord) -> None:
        """Enter what the policy accepts, unless others have spent what was left meanwhile.

        Then the offer is looked at anew.
        """
        with self._state.answering() as answers:
            cost = self._costs.of(offer.run, record)
            if cost is not None and cost.unpaid:
                forget_look(self._state.run(offer.run))
            else:
                answers.record(offer, "accepted", by_policy=True)

    def _fetched(self, offered: Offered, folder: Path) -> Offer:
        content = self._host.offer(offered.run)
        offer = Offer.parse(content)
        if (offer.run, offer.fingerprint) != (offered.run, offered.fingerprint):
            raise ConfigError("the host shows another offer than the one in its list")
        left = MOST_FILES
        for name, digest in offer.files.items():
            path = folder / FILES / name
            self._host.fetch(offered.run, digest, path, left)
            left -= path.stat().st_size
        files.write(folder / OFFER, content, files.SECRET)
        return offer
