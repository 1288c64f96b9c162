"""Runs that tacit 0.2 has begun, and that were killed in the middle: what is here now goes on with
its files.

Each is a deployment of 0.2 as it lay on disk (tests/kept/0.2): store, snapshot, ledgers, outboxes
with a message that has no receipt, and what a peer or a party keeps besides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tacit_services.aggregator import entries
from tacit_services.aggregator.vertical import record_labels
from tacit_services.journal import snapshot_file
from tacit_services.journal.store import open_store
from tacit_services.journal.weights import weights

from tacit import config
from tacit.algorithms import registry
from tacit.algorithms.base.labelled_records import LabelledRecords
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.vafl.vertical_settings import vertical
from tacit.errors import OF_0_1
from tacit.privacy.accounting import epsilon_pld
from tacit.privacy.ledger import read_chains
from tests.helpers.gossip import Disks, peer, settled
from tests.helpers.older import of_0_1, unpacked
from tests.helpers.processes import (
    PATIENCE,
    Accepted,
    Deployment,
    Service,
    appended,
    check,
    deployment,
    journalled,
)
from tests.helpers.servers import HOST, mosquitto, redis_server, wait_for

EDGES = range(2)


@contextmanager
def taken_over(name: str, tmp_path: Path, store: str = "") -> Iterator[Deployment]:
    """Yield the deployment `name` of 0.2 on a broker of its own; nothing is started yet."""
    folder = unpacked(name, tmp_path) if not store else tmp_path / name
    url = store or f"sqlite:///{folder}/store.db"
    with mosquitto(folder) as broker:
        address, text = f"{broker.host}:{broker.port}", (folder / "run.toml").read_text()
        with deployment(folder, text, address, url, name) as run:
            yield run


class Left:
    """What 0.2 had done when it was killed."""

    def __init__(self, run: Deployment) -> None:
        self._run = run
        self.charged = [run.pushes(number) for number in EDGES]
        self.pending = [max(run.pending(number).items()) for number in EDGES]

    def goes_on(self, summary: dict[str, Any], journal_entries: list[Accepted]) -> None:
        """Check that ε counted on, by ledgers whose chains are whole.

        What was paid for is in the journal, once, as it was.
        """
        accepted = {(entry.edge, entry.seq): entry.payload for entry in journal_entries}
        for number in EDGES:
            seq, envelope = self.pending[number]
            assert accepted[f"edge-{number}", seq] == envelope
            (chain,) = read_chains(self._run.folder / "identities" / str(number) / "ledger.db")
            chain.verify()
            account = summary["privacy"]["edges"][f"edge-{number}"]
            assert 0 < self.charged[number] < account["pushes"] <= chain.count
            (each,) = chain.history()  # of 0.2's charges and of those since: they are alike
            spent = [replace(each, count=account["pushes"])]
            assert account["epsilon_pld"] == pytest.approx(
                epsilon_pld(spent, account["delta"]), rel=1e-9
            )


def gone_on(
    run: Deployment, before: list[Accepted]
) -> tuple[Service, dict[str, Any], list[Accepted]]:
    """Run today's services with a journal file to the run's end.

    Return the aggregator, the run's summary, and all journal entries.
    """
    aggregator = run.aggregator(TACIT_JOURNAL_FILE=str(run.folder / "journal"))
    for number in EDGES:
        run.edge(number)
    summary, journal_entries = run.ended(), journalled(run)
    assert journal_entries[: len(before)] == before
    return aggregator, summary, journal_entries


def test_a_run_on_sqlite_with_a_journal_file(tmp_path: Path) -> None:
    with taken_over("mapa", tmp_path) as run:
        leftover, before = Left(run), journalled(run)
        aggregator, summary, journal_entries = gone_on(run, before)
        check(run, summary, journal_entries, EDGES)
        leftover.goes_on(summary, journal_entries)
        assert "resumed at version 46 (6 journal entries replayed)" in aggregator.log


def test_a_run_on_redis(tmp_path: Path) -> None:
    folder = unpacked("fedasync", tmp_path)
    with (
        redis_server(folder, "--auto-aof-rewrite-min-size", "1gb") as redis,
        taken_over("fedasync", tmp_path, redis.url) as run,
    ):
        leftover, before = Left(run), appended(folder)
        run.aggregator()
        for number in EDGES:
            run.edge(number)
        summary = run.ended()
        journal_entries = appended(folder)
        assert journal_entries[: len(before)] == before
        assert len(before) == 26
        check(run, summary, journal_entries, EDGES)
        leftover.goes_on(summary, journal_entries)
        with closing(open_store(redis.url, "fedasync")) as store:
            assert store.open(config.load(run.file).fingerprint()) == 3


def test_what_0_1_has_left_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    folder = of_0_1(tmp_path)
    text, url = (folder / "run.toml").read_text(), f"sqlite:///{folder}/store.db"
    names = ("store.db", "identities/0/ledger.db", "identities/0/outbox.db")
    before = {name: (folder / name).read_bytes() for name in names}
    with deployment(folder, text, f"{HOST}:1", url, "mapa") as run:
        for service, code, name in ((run.aggregator(), 2, names[0]), (run.edge(0), 5, names[2])):
            assert service.wait() == code
            last = service.log.splitlines()[-1]
            assert str(folder / name) in last
            assert last.endswith(OF_0_1)
            assert "Traceback" not in service.log
    assert {name: (folder / name).read_bytes() for name in names} == before
    assert not list(folder.rglob("*.db-*"))


def test_peers(tmp_path: Path) -> None:
    with taken_over("gossip", tmp_path) as run:
        disks = Disks(run, len(EDGES))
        steps, charged = (
            [disks.steps(number) for number in EDGES],
            [run.pushes(number) for number in EDGES],
        )
        assert min(steps) > 10
        run.aggregator()
        for number in EDGES:
            peer(run, number)
        wait_for((run.out / "summary.json").exists, PATIENCE)
        settled(run, disks, config.load(run.file).run.updates)
        assert all(disks.steps(number) >= steps[number] for number in EDGES)
        assert all(run.pushes(number) >= charged[number] for number in EDGES)


def snapshot(
    run: Deployment, labelled_records: LabelledRecords | None = None
) -> tuple[ServerRole, int]:
    """Return the fold that 0.2 has stored, and the position up to which it is.

    What comes after it is folded to the same bits on this processor, which 0.2's was not.
    """
    with closing(open_store(run.url, run.run_id)) as store:
        stored = store.snapshot()
    assert stored is not None
    file = config.load(run.file)
    role = registry.server(file.define(), file.build_model(), labelled_records)
    tensors, values = snapshot_file.loads(bytes(stored.state))
    role.restore(tensors, values["role"])
    return role, stored.cursor


def test_parties(tmp_path: Path) -> None:
    with taken_over("vafl", tmp_path) as run:
        before = journalled(run)
        labels = (run.folder / "labels.safetensors").read_bytes()
        released = {path: path.read_bytes() for path in run.folder.glob("identities/*/released/*")}
        pending = [max(run.pending(number).items()) for number in EDGES]
        file = config.load(run.file)
        everybody = record_labels.load(
            vertical(file.define()), None, "tacit", run.folder / "labels.safetensors"
        )
        role, cursor = snapshot(run, everybody)
        run.aggregator(TACIT_JOURNAL_FILE=str(run.folder / "journal"))
        for number in EDGES:
            run.edge(number, "party")
        summary = run.ended()
        journal_entries = journalled(run)
        # What was accepted is, with what was under way, each once; and the model is the fold of it.
        assert journal_entries[: len(before)] == before
        in_the_journal = {(entry.edge, entry.seq): entry.payload for entry in journal_entries}
        assert all(
            in_the_journal[f"edge-{number}", seq] == envelope
            for number, (seq, envelope) in enumerate(pending)
        )
        model = file.build_model()
        for entry in journal_entries[cursor:]:
            role.on_message(entries.read(entry.payload, model.schema_hash(), model.size))
        assert summary["applied"] == role.version == file.run.updates
        digest = hashlib.sha256(weights(model, role.params)).hexdigest()
        assert summary["model_sha256"] == digest
        # Labels were drawn once, and embeddings released and paid for once: nothing of it is done
        # again.
        assert (run.folder / "labels.safetensors").read_bytes() == labels
        assert {
            path: path.read_bytes() for path in run.folder.glob("identities/*/released/*")
        } == released
        assert [run.pushes(number) for number in EDGES] == [1, 1]
        assert json.loads((run.out / "ledger.json").read_text())["edges"]["edge-0"]["pushes"] == 1
