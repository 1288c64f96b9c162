"""A member's folder after a run that has ended: its offer, the model, and a ledger, but no host."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch
from tacit_services.enrollment import certificates
from tacit_services.identity.folder import Identities
from tacit_services.identity.ledger_loan import UNBOUND
from tacit_services.journal.weights import weights
from tacit_services.member.cost_terms import CostTerms
from tacit_services.member.data_ledger import DataLedger
from tacit_services.member.look_record import LookRecord
from tacit_services.member.member_state import Membership, MemberState
from tacit_services.member.run_diary import RunDiary
from tacit_services.member.run_here import definition_of
from tacit_services.member.run_promise import RunPromise

from tests.helpers.offered import federations_run, fetched, packed, table
from tests.helpers.run_files import Keys

RUN, ROWS, HELD_OUT = "doses-1", 400, 0.2
LOOKS: dict[str, object] = {"at": "edges", "looks": 2, "epsilon": 5.0}


@dataclass(frozen=True, slots=True)
class PastRun:
    """A member's state, its user's data folder, and the key by which the ledger holds rows out.

    params: (d,), the model that the run has ended with. key: None of a run that holds none out.
    """

    state: MemberState
    home: Path
    params: torch.Tensor
    key: bytes | None


def past_run(folder: Path, home: Path, **evaluation: object) -> PastRun:
    """Let a member have taken part in a run with this [evaluation] section, which is over.

    Its host is an address at which nobody answers.
    """
    (folder / "researcher").mkdir(parents=True)
    sections: dict[str, Keys] = {"evaluation": dict(evaluation)} if evaluation else {}
    offer = packed(folder / "researcher", federations_run(**sections), RUN)
    state = MemberState(folder / "state")
    rows = table(folder / "mine.csv", ROWS, 5)
    nobody = "https://127.0.0.1:1"
    state.keep(
        Membership(nobody, "edge-3", "St. Mary's", str(rows), "mine", ROWS, here=str(folder))
    )
    _certificate(state)
    fetched(offer, folder / "state" / "runs" / RUN)
    terms = CostTerms("one row", "discrete_gaussian")
    promise = RunPromise(0.125, 0.8, "discrete_gaussian", 60, 100.0, 1e-5)
    LookRecord(
        offer.offer.fingerprint, "ask", "", "", (("Who asks", (("name", "Ada"),)),), promise, terms,
        "Ada", 1_800_000_000.0,
    ).keep(state.run(RUN))  # fmt: skip
    with state.answering() as answers:
        answers.record(offer.offer, "accepted", by_policy=False)
    began = 1_800_000_000.0
    RunDiary(offer.offer.fingerprint, began, began + 100, "ended").keep(state.run(RUN))
    model = definition_of(state, RUN).build_model()
    params = model.init(3)
    (state.run(RUN) / "model.safetensors").write_bytes(weights(model, params))
    key = _charged(state, home, offer.offer.fingerprint, split=bool(evaluation))
    return PastRun(state, home, params, key)


def _certificate(state: MemberState) -> None:
    key = certificates.new_key()
    authority = certificates.pem(certificates.authority(key, "authority"))
    for path, content in ((state.tls.ca, authority), (state.tls.cert, authority)):
        path.write_bytes(content)
    state.tls.key.write_bytes(certificates.key_pem(key))


def _charged(state: MemberState, home: Path, run: str, *, split: bool) -> bytes | None:
    """Let the run charge the ledger of the member's data; returns the key of its split."""
    owned = definition_of(state, RUN).source.owned(3)
    assert owned is not None
    identity = Identities(state.folder / "identities", 0).acquire(1, threading.Event())
    assert identity is not None
    with closing(identity):
        data = DataLedger(identity, home, UNBOUND)
        try:
            with closing(data.loan(owned).opened(run)) as ledger:
                key = ledger.split(HELD_OUT) if split else None
                ledger.charge(0.125, 0.8, "discrete_gaussian", secret=True, count=5)
        finally:
            data.release()
    return key
