"""Read what 0.2 wrote, to the bit, and refuse what 0.1 or a newer tacit wrote.

No attribute's name is a format.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from tacit_services.aggregator.reporting.run_status import SUMMARY_FORMAT
from tacit_services.enrollment.tokens import EnrollmentToken, TokenRegister
from tacit_services.identity import lineage
from tacit_services.identity.folder import Identities, Identity
from tacit_services.journal import journal_file
from tacit_services.journal import snapshot_file as state_file
from tacit_services.journal.store import open_store
from tacit_services.party.kept import KeptEmbeddings
from tacit_services.peer.peer_state import PeerState
from tacit_services.testbed import output_folder, vertical_predict
from tacit_services.testbed.simulated_run import Simulation

from tacit import config
from tacit.config import RunFile
from tacit.errors import OF_0_1, BudgetSpent, ConfigError, PrivacyError, WireError
from tacit.privacy.accounting import epsilon_pld
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.grid import grid_step
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.release import Releaser
from tests.helpers.older import KEPT, of_0_1, unpacked

BEGUN_WITH = {  # what one or another of the snapshots has as a new role has it
    "absent",
    "asked",
    "clip",
    "due",
    "exam_rows",
    "examined",
    "examining",
    "final",
    "halted",
    "idle",
    "requests",
    "stage",
    "stale",
    "triggers",
    "weight",
}
ALGORITHMS = ("mapa", "fedasync", "fedbuff", "fedavg", "dp-pasgd", "adp2sgd", "sync", "vafl")


def identity(root: Path, number: int = 0) -> Identity:
    acquired = Identities(root, number).acquire(2, threading.Event())
    assert acquired is not None
    return acquired


def written(data: bytes) -> tuple[dict[str, tuple[torch.dtype, bytes]], dict[str, str]]:
    """Return the tensors of a snapshot, to the bit, and the text of its JSON.

    Their order in the file is chance.
    """
    data = data[16:]
    tensors = safetensors.torch.load(data)
    return {
        name: (tensor.dtype, tensor.numpy().tobytes()) for name, tensor in tensors.items()
    }, state_file.metadata(data)


class TestSnapshots:
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_of_0_2_are_restored_and_written_again_to_the_bit(
        self, tmp_path: Path, algorithm: str
    ) -> None:
        folder = unpacked("states", tmp_path)
        run = RunFile.model_validate_json((folder / f"{algorithm}.json").read_bytes())
        simulation = Simulation(run.define(), None)
        roles = {"server": simulation.role, **simulation.simulator.edges}
        files = sorted(folder.glob(f"{algorithm}.*.state"))
        assert files
        for path in files:
            role, stored = roles[path.name.split(".")[1]], path.read_bytes()
            role.restore(*state_file.loads(stored))  # type: ignore[union-attr]
            assert written(state_file.dumps(*role.state())) == written(stored)  # type: ignore[union-attr]

    def test_one_in_the_middle_is_not_a_new_one(self, tmp_path: Path) -> None:
        """So that the test above could fail: all else they have is not what a role begins with."""
        folder = unpacked("states", tmp_path)
        for algorithm in ALGORITHMS:
            run = RunFile.model_validate_json((folder / f"{algorithm}.json").read_bytes())
            stored = state_file.loads((folder / f"{algorithm}.server.state").read_bytes())[1]
            new = Simulation(run.define(), None).role.state()[1]
            same = {
                key for key, value in new.items() if json.loads(json.dumps(value)) == stored[key]
            }
            assert same <= BEGUN_WITH, algorithm


class TestTheLedger:
    def test_of_0_2_goes_on_in_the_middle_of_its_budget(self, tmp_path: Path) -> None:
        # Given a ledger of 0.2 with 24 charges, and a budget that pays for 26,
        folder = unpacked("mapa", tmp_path)
        run = config.load(folder / "run.toml")
        plan = run.plan(0, 700)
        with (
            closing(identity(folder / "identities")) as edge,
            lineage.ledger(edge, edge.ledger_place, "digits") as ledger,
        ):
            assert ledger.charged().count == 24
            (spent,) = ledger.history()
            budget = epsilon_pld([replace(spent, count=26)], plan.delta)
            releaser = Releaser(replace(plan, epsilon=budget * (1 + 1e-9)), ledger, Random())
            # when it releases, then twice, and ε is that of all 26.
            nobody = Clipped(torch.zeros(650, dtype=torch.int64), 1.0, grid_step(1.0, 1.0))
            for _ in range(2):
                releaser.release(1.0, lambda: nobody)
            with pytest.raises(BudgetSpent):
                releaser.release(1.0, lambda: nobody)
            assert epsilon_pld(ledger.history(), plan.delta) == budget
            ledger.verify()


class TestEnrolment:
    def test_of_0_2_is_demanded_and_kept_when_another_is_added(self, tmp_path: Path) -> None:
        folder = unpacked("mapa", tmp_path)
        marker = folder / "identities" / "0" / "enrolled.json"
        before = json.loads(marker.read_text())
        with closing(identity(folder / "identities")) as edge:
            with lineage.ledger(edge, edge.ledger_place, "digits") as ledger:
                digits = {"lineage": before["ledgers"]["digits"]["lineage"], "count": 24}
                digits["head"] = ledger.charged().head.hex()
            with lineage.ledger(edge, edge.ledger_place, "mnist") as other:
                now = json.loads(marker.read_text())
                mnist = {"lineage": other.lineage.hex(), "count": 0, "head": ""}
                assert now.pop("ledgers") == {"digits": digits, "mnist": mnist}
                assert now == {"format": 2, "owner": before["owner"]}
            (edge.path / "ledger.db").unlink()
            with (
                pytest.raises(PrivacyError, match="missing or empty"),
                lineage.ledger(edge, edge.ledger_place, "digits"),
            ):
                pass

    def test_tokens_of_0_2_are_known(self, tmp_path: Path) -> None:
        shutil.copy(KEPT / "tokens", tmp_path / "tokens")
        before = TokenRegister(tmp_path).all()
        assert [(token.once, token.edges, token.served) for token in before] == [
            (False, "edge-*", "-"),
            (True, "edge-7", "edge-7"),
        ]
        TokenRegister(tmp_path).add("edge-8", once=True)
        assert (tmp_path / "tokens").read_text().startswith("tacit tokens 1\n")
        assert TokenRegister(tmp_path).all()[:2] == before
        assert isinstance(TokenRegister(tmp_path).all()[2], EnrollmentToken)


def test_embeddings_that_0_2_has_released_are_sent_again(tmp_path: Path) -> None:
    folder = unpacked("vafl", tmp_path) / "identities" / "0" / "released"
    (path,) = folder.iterdir()
    cache = KeptEmbeddings(folder)
    embeddings = cache.get(path.stem)
    assert embeddings is not None
    assert embeddings.shape == (1797, 2)
    cache.put("again", embeddings)
    again = cache.get("again")
    assert again is not None
    assert torch.equal(again, embeddings)
    assert state_file.metadata((folder / "again.safetensors").read_bytes()) == {"tacit": "1"}


class TestSummary:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """Return the output directory of a vertical run."""
        run_file = unpacked("vafl", tmp_path) / "run.toml"
        (tmp_path / "state").mkdir()
        (tmp_path / "state" / output_folder.MARKER).write_text(
            json.dumps({"TACIT_RUN_FILE": str(run_file)})
        )
        return tmp_path

    def test_of_0_2_is_of_the_same_run(self, folder: Path) -> None:
        shutil.copy(KEPT / "vafl-summary.json", folder / "summary.json")
        run, _ = vertical_predict._ended_run(folder)
        assert run.algorithm.name == "vafl"

    def test_of_a_newer_format_is_refused(self, folder: Path) -> None:
        summary = json.loads((KEPT / "vafl-summary.json").read_text())
        (folder / "summary.json").write_text(json.dumps(summary | {"format": SUMMARY_FORMAT + 1}))
        with pytest.raises(ConfigError, match="has format 2, this tacit reads 1: a newer one"):
            vertical_predict._ended_run(folder)

    def test_of_0_1_is_refused(self, folder: Path) -> None:
        shutil.copy(of_0_1(folder) / "vafl-summary.json", folder / "summary.json")
        with pytest.raises(ConfigError, match="has no format, this tacit reads 1: ") as refused:
            vertical_predict._ended_run(folder)
        assert OF_0_1 in str(refused.value)


def numbered(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {numbered(path) + 1}")


@contextmanager
def refused(ending: str, place: Path) -> Iterator[None]:
    """Expect a one-line PrivacyError or ConfigError with this ending, and no change in `place`."""
    before = contents(place)
    with pytest.raises((PrivacyError, ConfigError)) as refusal:
        yield
    line = str(refusal.value).removesuffix("; refusing to train without it")
    assert line.removesuffix("; refusing to train without its history").endswith(ending)
    assert "\n" not in line
    assert contents(place) == before


def contents(place: Path) -> dict[Path, bytes]:
    """Return every file below `place`, but for locks."""
    files = (path for path in place.rglob("*") if path.is_file() and "lock" not in path.name)
    return {path: path.read_bytes() for path in files}


def started(folder: Path) -> None:
    """Open the ledger as an edge does when it starts."""
    with closing(identity(folder)) as edge, lineage.ledger(edge, edge.ledger_place, "digits"):
        pass


class TestOf01:
    """Every file of 0.1 is refused in a line that names it and says what to do."""

    @pytest.fixture
    def old(self, tmp_path: Path) -> Path:
        """Return files of 0.1."""
        return of_0_1(tmp_path)

    def test_an_identity(self, old: Path) -> None:
        folder, edge_folder = old / "identities", old / "identities" / "0"
        with refused(f"outbox {edge_folder / 'outbox.db'}: lies beside the ledger: {OF_0_1}", old):
            started(folder)
        # Without its outbox it is known by its record, and without that by its ledger.
        (edge_folder / "outbox.db").unlink()
        message = f"{edge_folder / 'enrolled.json'}: has no format, this tacit reads 2: {OF_0_1}"
        with refused(message, old):
            started(folder)
        (edge_folder / "enrolled.json").unlink()
        message = f"{edge_folder / 'ledger.db'}: has format 2, this tacit reads 3: {OF_0_1}"
        with refused(message, old):
            started(folder)

    def test_an_outbox_that_0_2_has_left_beside_its_record(self, old: Path, tmp_path: Path) -> None:
        folder = unpacked("mapa", tmp_path) / "identities"
        shutil.copy(old / "identities" / "0" / "outbox.db", folder / "0")
        with refused(OF_0_1, folder):
            started(folder)
        (folder / "0" / "outbox.db").unlink()  # as docs/upgrade.md says
        started(folder)

    def test_a_store(self, old: Path) -> None:
        message = f"{old / 'store.db'}: has format 2, this tacit reads 3: {OF_0_1}"
        with (
            refused(message, old),
            closing(open_store(f"sqlite:///{old}/store.db", "mapa")) as store,
        ):
            store.open("f")

    def test_a_journal_file(self, old: Path) -> None:
        before = contents(old)
        with (
            journal_file.open_journal(old / "journal") as file,
            pytest.raises(WireError) as refusal,
        ):
            journal_file.JournalReader(file, f"journal {old / 'journal'}")
        assert str(refusal.value).startswith(f"journal: journal {old / 'journal'}: ")
        assert str(refusal.value).endswith(f"is of a run that tacit 0.1 began: {OF_0_1}")
        assert contents(old) == before

    def test_a_peers_state(self, old: Path) -> None:
        path = old / "peer.db"
        with refused(f"peer state {path}: has no format, this tacit reads 1: {OF_0_1}", old):
            PeerState(path, "gossip")

    def test_embeddings(self, old: Path) -> None:
        with refused("without the file they would be paid for anew", old):
            KeptEmbeddings(old).get("released")

    def test_tokens(self, old: Path) -> None:
        with refused(f"{old / 'tokens'}: has no format, this tacit reads 1: {OF_0_1}", old):
            TokenRegister(old).all()


class TestNewer:
    def test_a_peers_state_is_refused(self, tmp_path: Path) -> None:
        path = unpacked("gossip", tmp_path) / "identities" / "0" / "peer.db"
        PeerState(path, "gossip").close()
        assert numbered(path) == 1
        newer(path)
        message = f"peer state {path}: has format 2, this tacit reads 1: a newer one has written it"
        with refused(message, tmp_path):
            PeerState(path, "gossip")

    def test_a_ledger_is_refused(self, tmp_path: Path) -> None:
        path = unpacked("mapa", tmp_path) / "identities" / "0" / "ledger.db"
        Ledger(path, "digits").close()
        newer(path)
        message = f"{path}: has format 4, this tacit reads 3: a newer one has written it"
        with refused(message, tmp_path):
            Ledger(path, "digits")

    def test_an_enrolment_is_refused(self, tmp_path: Path) -> None:
        folder = unpacked("mapa", tmp_path) / "identities"
        (folder / "0" / "enrolled.json").write_text('{"format": 3, "ledgers": {}}')
        with refused("has format 3, this tacit reads 2: a newer one has written it", tmp_path):
            started(folder)

    def test_tokens_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "tokens").write_text("tacit tokens 2\n")
        with refused("has format 2, this tacit reads 1: a newer one has written it", tmp_path):
            TokenRegister(tmp_path).all()

    def test_embeddings_are_refused(self, tmp_path: Path) -> None:
        data = safetensors.torch.save({"embeddings": torch.zeros(2, 2)}, {"tacit": "2"})
        (tmp_path / "one.safetensors").write_bytes(data)
        with pytest.raises(PrivacyError, match="has format 2, this tacit reads 1"):
            KeptEmbeddings(tmp_path).get("one")
