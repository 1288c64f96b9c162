"""What an edge states: its ledger's chain, its accepted messages, and nothing that is not signed."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from tacit_services.enrollment import certificates
from tacit_services.statements import signing
from tacit_services.statements.accepted_messages import AcceptedMessages, accepted
from tacit_services.statements.running_code import running_code
from tacit_services.statements.signing import SignedDocument
from tacit_services.worker.outbox import Outbox

from tacit.privacy.ledger import Ledger, SharedLedger, StatedChain


def charged(ledger: Ledger, times: int, z: float = 1.0) -> None:
    for _ in range(times):
        ledger.charge(0.1, z, "gaussian", secret=True)


def test_a_stated_chain_has_every_charge_that_has_begun_and_no_name(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db", "/home/ada/patients.csv")
    charged(ledger, 3)
    charged(ledger, 2, 2.0)
    ledger.charge(0.1, 2.0, "gaussian", secret=True, count=1)
    with ledger.transaction(None):
        pass
    chain = StatedChain.of(ledger.chain(), ledger.charged())
    again = StatedChain.read(chain.document())
    again.verify()
    assert (again.count, again.head) == (6, ledger.charged().head)
    assert again.history() == ledger.history()
    assert again.heads({3, 6, 7}) == {3: again.rows[0].head, 6: again.head}
    assert "patients" not in str(chain.document())


@pytest.mark.parametrize("key", ["session", "q", "z", "mechanism", "secret", "count", "head"])
def test_a_chain_with_another_field_in_a_row_is_refused(tmp_path: Path, key: str) -> None:
    ledger = Ledger(tmp_path / "ledger.db", "data")
    charged(ledger, 3)
    document = StatedChain.of(ledger.chain(), ledger.charged()).document()
    others = {"q": "0x1p-9", "z": "0x1p+9", "mechanism": "knorm", "secret": False, "count": 2}
    document["rows"][0][key] = others.get(key, "00" * (16 if key == "session" else 32))
    with pytest.raises(ValueError, match=r"chain|row"):
        StatedChain.read(document).verify()


def test_what_is_charged_ahead_is_not_stated(tmp_path: Path) -> None:
    ledger = SharedLedger(tmp_path / "ledger.db", "data", run="first")
    charged(ledger, 2)
    others = SharedLedger(tmp_path / "ledger.db", "data", run="second")
    charged(others, 5)
    with ledger.transaction():
        pass
    chain = StatedChain.of(ledger.chain(), ledger.charged())
    chain.verify()
    assert chain.count == ledger.charged().count
    everything = StatedChain.of(others.chain(), others.charged())
    everything.verify()
    assert everything.count == 7


def test_an_outbox_chains_what_was_accepted_across_restarts(tmp_path: Path) -> None:
    # Given messages of which one is refused, one gets no answer, and a process that dies between,
    import hashlib

    digests = {n: hashlib.sha256(b"message %d" % n).digest() for n in range(1, 6)}
    ledger = Ledger(tmp_path / "ledger.db", "data")
    outbox = Outbox(ledger, "run")
    for number, is_accepted in ((1, True), (2, False), (3, True)):
        outbox.put(number, b"message %d" % number)
        outbox.done(number, accepted=is_accepted)
    outbox.put(4, b"message 4")  # what was accepted is on disk from here on
    ledger.close()
    # when another process goes on, and the run ends,
    ledger = Ledger(tmp_path / "ledger.db", "data")
    outbox = Outbox(ledger, "run")
    assert outbox.oldest() == (4, b"message 4")
    outbox.done(4, accepted=True)
    outbox.put(5, b"message 5")
    assert outbox.unanswered == {5: digests[5]}
    outbox.give_up()
    # then those with a receipt are chained, each once, and the last one is told apart.
    assert outbox.accepted == accepted((n, digests[n]) for n in (1, 3, 4))
    assert outbox.unanswered == {5: digests[5]}
    assert Outbox(ledger, "another").accepted == AcceptedMessages()


def test_a_receipt_that_comes_twice_counts_once() -> None:
    once = accepted([(1, b"1" * 32), (2, b"2" * 32)])
    assert once.then(2, b"2" * 32) == once
    assert accepted([(2, b"2" * 32), (1, b"1" * 32)]).count == 1


def test_a_signature_is_of_one_title_one_text_and_one_key() -> None:
    key, other = certificates.new_key(), certificates.new_key()
    text = signing.signed("a statement", {"epsilon": 1.5}, key).encode()
    assert SignedDocument("a statement", text).is_by(key.public_key())
    assert not SignedDocument("a statement", text).is_by(other.public_key())
    assert not SignedDocument("a bundle", text).is_by(key.public_key())
    changed = text.replace(b"1.5", b"0.5")
    assert not SignedDocument("a statement", changed).is_by(key.public_key())
    for bad in (
        text + b" ",
        b"{}",
        b"[]",
        b'{"content": "{}", "signature": 1}',
        b"\xff",
        b"[" * 9999,
    ):
        with pytest.raises(ValueError, match="signed document"):
            SignedDocument("a statement", bad)


def test_a_stranger_cannot_write_a_signature_in_its_other_form() -> None:
    key = certificates.new_key()
    document = json.loads(signing.signed("a statement", {"epsilon": 1.5}, key))
    r, s = decode_dss_signature(base64.b64decode(document["signature"]))
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    assert s <= order // 2
    other = encode_dss_signature(r, order - s)
    key.public_key().verify(other, b'a statement\n{"epsilon":1.5}', ec.ECDSA(hashes.SHA256()))
    document["signature"] = base64.b64encode(other).decode()
    text = json.dumps(document, ensure_ascii=False) + "\n"
    assert not SignedDocument("a statement", text.encode()).is_by(key.public_key())


def test_the_running_code_is_named_by_what_a_wheels_record_says() -> None:
    code = running_code()
    assert len(code.files) == 64
    assert code.version == "0.2.0" or code.version > "0.2.0"
    assert {"torch", "numpy", "dp-accounting"} <= set(code.libraries)
