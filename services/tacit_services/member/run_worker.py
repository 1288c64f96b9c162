"""The process of a member at work in one run.

    python -m tacit_services.member.run_worker STATE RUN LOAN HOURS

It reads the offer that was consented to from the member's folder, checks again that it is that one
and that the consent holds, and trains as `tacit edge` does. It ends when the consent or the hours
do (PAUSED), also where its member is busy. The ledger it is lent by the member, by
a third argument and the locks that it inherits. Without one, it works on a part of published data,
whose ledger it opens itself. Its settings are TACIT_* variables, as of an edge.

Where no locks are inherited (Windows), the member's process alone has those of the ledger, and
nothing ends a worker whose member was killed. It looks itself, as for consent, twice a second.
Another member may begin before it has looked: no charge is lost by that, as each is a transaction
of the file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from tacit import file_lock
from tacit.datasets import Source
from tacit.errors import PolicyForbids
from tacit.privacy.ledger import Ledger
from tacit.privacy.policy import Policy
from tacit_services import launch, logs
from tacit_services.edge.main import edge_loop
from tacit_services.identity.folder import Identity
from tacit_services.identity.ledger_loan import LedgerLoan
from tacit_services.identity.lineage import LedgerUse
from tacit_services.member.consent_watch import PAUSED, ConsentWatch
from tacit_services.member.handing_over import stated
from tacit_services.member.member_state import MemberState
from tacit_services.member.run_here import site_of
from tacit_services.member.working_hours import within
from tacit_services.offers.offer_reading import definition_at_member, read_offer
from tacit_services.offers.submission import FILES
from tacit_services.settings import EdgeSettings, read_settings
from tacit_services.statements.statement import StatedConsent
from tacit_services.worker import row_owner
from tacit_services.worker.resources import ledger_of


def work(folder: Path, run: str, loan: LedgerLoan | None, hours: str | None = None) -> int:
    """Work in a run until it ends, or SIGTERM, and return the exit code. Raises TacitError.

    loan: None where the worker opens a ledger of its own. hours: the policy's, in local time, or
    None for every hour.
    """
    settings = read_settings(EdgeSettings)
    logs.to_stderr(settings.log, settings.log_format)
    state = MemberState(folder)
    with state.working(run):
        offer = read_offer(state.run(run))
        consent = state.consents().to(offer)
        if consent is None or not consent.holds:
            raise PolicyForbids(f"run {run}: its owner has not consented to this offer", "accept")
        watch = ConsentWatch(state, offer, partial(_forbidden, state, Policy(hours=hours)))
        watch.start()
        definition = definition_at_member(offer, state.run(run) / FILES, site_of(state))
        ledger = ledger_of if loan is None else partial(_borrowed, loan, offer.fingerprint)
        answers = partial(_answers, state, run)
        row_owner.work(settings, "edge", edge_loop, definition, ledger, answers)
        return PAUSED if watch.ended else 0


def _answers(state: MemberState, run: str) -> list[StatedConsent]:
    return stated(state.consents().all(), run)


def _forbidden(state: MemberState, policy: Policy) -> str | None:
    """Return why a worker may not work now; None: it may."""
    if not within(policy):
        return "its owner's hours are over"
    if not file_lock.INHERITED and not state.at_work():
        return "its member has ended"  # elsewhere the system ends a worker with its member
    return None


@contextmanager
def _borrowed(
    loan: LedgerLoan, run: str, source: Source, identity: Identity, use: LedgerUse
) -> Iterator[Ledger]:
    """Yield the member's ledger for this run, whose charges count for itself alone.

    The identity's id, under which its messages lie in the ledger, is durable before one does.
    """
    with closing(loan.opened(run)) as ledger:
        identity.enrolment().note(loan.dataset, ledger)
        yield ledger


def main(folder: str, run: str, loan: str, hours: str) -> None:
    """Work as the process's arguments say; a code of `work` becomes the process's.

    loan: "" where the worker opens a ledger of its own.
    """
    lent = LedgerLoan.read(loan) if loan else None
    if code := work(Path(folder), run, lent, hours or None):
        sys.exit(code)


if __name__ == "__main__":
    launch.run(lambda: main(*sys.argv[1:]))
