"""A member's rows and their ledger, as the offers that have come would read them."""

from __future__ import annotations

from collections.abc import Iterator

from tacit.errors import ConfigError, PrivacyError, TacitError
from tacit.privacy.ledger import read_chains
from tacit_services.display.progress import SlowSteps
from tacit_services.doctor.diagnosis import Diagnosis, ill, skipped, well
from tacit_services.identity import own_ledgers
from tacit_services.member import run_spending
from tacit_services.member.member_state import MemberState
from tacit_services.member.run_diary import diary_in
from tacit_services.offers.submission import FILES
from tacit_services.settings import data_home


class RowsHere:
    """The looks at one member's rows. Nothing is charged, registered or sent."""

    def __init__(self, state: MemberState) -> None:
        self._state = state

    def diagnoses(self) -> Iterator[Diagnosis]:
        """Yield how the ledger stands, and a line for each offer that has come."""
        yield self._ledger()
        looks = sorted((self._state.folder / "runs").glob("*/look.json"))
        if not looks:
            yield skipped("rows", "no offer has come that says which columns are read")
        for path in looks:
            yield self._rows(path.parent.name)

    def _ledger(self) -> Diagnosis:
        membership = self._state.membership()
        assert membership is not None
        name = membership.dataset
        try:
            ledgers = own_ledgers.account(name, data_home())
            for path in () if ledgers is None else ledgers.edges.values():
                read_chains(path)
            if membership.published is None and (forgotten := self._forgotten()) is not None:
                return forgotten
            if ledgers is None:
                return well("ledger", f"of {name}: begins with its first run")
            busy = own_ledgers.in_use(name, data_home())
        except PrivacyError as error:
            return ill("ledger", str(error), "put the newest copy of it back (docs/operations.md)")
        except ConfigError as error:
            return ill("ledger", str(error), "a run's diary cannot be read; remove that file")
        if busy and not self._state.at_work():
            return ill(
                "ledger",
                f"of {name}: another program of this machine trains on these rows",
                "wait for its end, or stop it",
            )
        return well("ledger", f"of {name}: can be read" + (", and is in use" if busy else ""))

    def _forgotten(self) -> Diagnosis | None:
        """Return that a run has spent more, by its diary, than any ledger here remembers.

        Raises PrivacyError, ConfigError.
        """
        home = data_home()
        remembered = run_spending.remembered(home)
        for path in sorted((self._state.folder / "runs").glob("*/diary.json")):
            diary = diary_in(path.parent)
            spent = None if diary is None else diary.spent
            if diary is None or spent is None or spent.releases <= remembered[diary.fingerprint]:
                continue
            return ill(
                "ledger",
                f"in {home} remembers {remembered[diary.fingerprint]:,} of the {spent.releases:,} "
                f"releases of run {path.parent.name}, which have cost {spent.words()}",
                "look with HOME and XDG_DATA_HOME as they were for `tacit join`; if they are, put "
                "the newest copy of the ledger back (docs/operations.md): without it more is spent "
                "than the policy allows",
            )
        return None

    def _rows(self, run: str) -> Diagnosis:
        """Read the rows as the run would."""
        # With torch, for which who has no offer yet need not wait.
        from tacit_services.member.looking import look, with_rows
        from tacit_services.member.run_here import site_of
        from tacit_services.offers.offer_reading import read_offer

        try:
            folder = self._state.run(run)
            offer = read_offer(folder)
            standing = self._state.consents().standing(offer)
            looked = look(offer, folder / FILES, site_of(self._state), standing)
            looked = with_rows(looked, data_home(), SlowSteps())
        except TacitError as error:
            return ill("rows", f"run {run}: {error}", "")
        if looked.trouble is not None:
            return ill("rows", f"run {run}: {looked.trouble.words}", "mend the file, or decline")
        return well("rows", f"run {run}: fit the offer")
