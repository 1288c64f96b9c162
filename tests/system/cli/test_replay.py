"""`tacit replay` of a real run's journal file gives the run's own model, whoever was killed on
the way.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tacit_services.cli.main import main
from tacit_services.cli.replay import fold
from tacit_services.journal import journal_file
from tacit_services.journal.journal_file import Header, JournalReader, Writer
from tacit_services.journal.store import Snapshot

from tacit import config
from tests.conftest import ROOT
from tests.helpers.processes import PATIENCE, Deployment, appended, deployment
from tests.helpers.servers import Mosquitto, mosquitto, redis_server, wait_for
from tests.system.test_crash import run_text


def replayed(file: Path) -> dict[str, Any]:
    """Return what `tacit replay --json` prints."""
    return fold(file).document()


def refusal(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> str:
    """Return the one line that the command exits with."""
    with pytest.raises(SystemExit) as exited:
        main([str(argument) for argument in arguments])
    (line,) = capsys.readouterr().err.splitlines()
    assert exited.value.code == code
    return line


def payloads(file: Path) -> list[tuple[int, bytes]]:
    with journal_file.open_journal(file) as opened:
        return [(entry.position, entry.payload) for entry in JournalReader(opened, "file")]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path) as running:
        yield running


@pytest.fixture
def run(tmp_path: Path, broker: Mosquitto) -> Iterator[Deployment]:
    """Yield a deployment of two edges and 200 updates on SQLite."""
    store, address = f"sqlite:///{tmp_path / 'store.db'}", f"{broker.host}:{broker.port}"
    with deployment(tmp_path, run_text(200, edges=2), address, store, "kept") as deployed:
        yield deployed


def test_an_aggregator_killed_again_and_again_keeps_every_accepted_message_once(
    run: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given an aggregator with a journal file, killed twice in a run,
    file = run.folder / "run.journal"
    aggregator = run.aggregator(TACIT_JOURNAL_FILE=str(file))
    run.edge(0), run.edge(1)
    for count in (30, 110):
        run.wait_accepted(count)
        aggregator.kill()
        before = payloads(file)
        aggregator.start()
    summary = run.ended()
    # when the file is folded again, then it ends in the same model,
    report = replayed(file)
    assert (report["version"], report["model_sha256"]) == (200, summary["model_sha256"])
    assert (report["torn_bytes"], report["begins_after"], report["halted"]) == (
        0,
        0,
        summary["reason"],
    )
    # and what was in it has stayed, in its place.
    records = payloads(file)
    assert records[: len(before)] == before
    assert [position for position, _ in records] == list(range(1, len(records) + 1))
    # A last record that was cut is said and left out; one that was altered is refused.
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    cut = replayed(file)
    assert (cut["records"], cut["torn_bytes"] > 0) == (report["records"] - 1, True)
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert "does not match its checksum" in refusal(capsys, 6, "replay", file)
    assert "not a journal" in refusal(capsys, 6, "replay", run.file)
    assert "No such file" in refusal(capsys, 3, "replay", run.folder / "none")


def test_noisy_labels_of_a_vertical_run_are_read_and_never_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, labels = tmp_path / "run.journal", tmp_path / "labels"
    run = config.load(ROOT / "experiments" / "vafl-digits.toml")
    noisy = run.model_copy(
        update={"algorithm": run.algorithm.model_copy(update={"label_epsilon": 1.0})}
    )
    writer = Writer(file)
    writer.open(Header("labels", noisy, Snapshot(0, b"")))
    writer.close()
    assert "no such file" in refusal(capsys, 3, "replay", file, "--labels", labels)
    assert not labels.exists()


@pytest.mark.slow
def test_the_file_has_what_redis_accepted_although_redis_dies_too(
    tmp_path: Path, broker: Mosquitto
) -> None:
    with redis_server(tmp_path, "--auto-aof-rewrite-min-size", "1gb") as redis:
        address = f"{broker.host}:{broker.port}"
        with deployment(tmp_path, run_text(200, edges=2), address, redis.url, "kept-redis") as run:
            # Given a run whose journal file is asked for after its first snapshot,
            file = tmp_path / "run.journal"
            first = run.aggregator()
            run.edge(0), run.edge(1)
            run.wait_accepted(60)
            assert first.signal(signal.SIGTERM) == 0
            aggregator = run.aggregator(TACIT_JOURNAL_FILE=str(file))
            # when redis and the aggregator are killed in turn,
            run.wait_accepted(100)
            redis.kill()
            wait_for(lambda: "store lost" in aggregator.log, PATIENCE)
            redis.start()
            run.wait_accepted(140)
            aggregator.kill()
            aggregator.start()
            summary = run.ended()
        accepted = appended(tmp_path)
    # then the file has what redis's own log has, from where it began, and the same model.
    report, records = replayed(file), payloads(file)
    assert records == [
        (entry.position, entry.payload) for entry in accepted[report["begins_after"] :]
    ]
    assert report["begins_after"] >= 40
    assert report["model_sha256"] == summary["model_sha256"]


@pytest.mark.slow
def test_tacit_run_keeps_a_journal_and_never_overwrites_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_file, file = tmp_path / "run.toml", tmp_path / "run.journal"
    run_file.write_text(run_text(30, edges=1))
    arguments = ("run", run_file, "--out", tmp_path / "out", "--journal", file)
    with pytest.raises(SystemExit) as exited:
        main([str(argument) for argument in arguments])
    assert exited.value.code == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert file.stat().st_mode & 0o777 == 0o600
    capsys.readouterr()
    assert "never overwritten" in refusal(capsys, 2, *arguments)
    with pytest.raises(SystemExit):
        main(["replay", str(file), "--json"])
    assert json.loads(capsys.readouterr().out)["model_sha256"] == summary["model_sha256"]
