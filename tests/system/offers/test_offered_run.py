"""A federation's run by the services of today: an aggregator, and members with files of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.errors import DataError
from tests.helpers.offered import federations_run, fetched, packed, table
from tests.helpers.own_data import NETS
from tests.helpers.processes import environment
from tests.helpers.servers import HOST, PATIENCE, free_port, mosquitto, wait_for

MEMBERS = (3, 1200)  # no number is too large for a run that counts two edges


@contextmanager
def process(name: str, log: Path, **settings: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run a service of an offer; it has ended when the block is left."""
    variables = {f"TACIT_{key.upper()}": str(value) for key, value in settings.items()}
    with log.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "tacit_services.offers.offered_services", name],
            env=environment(XDG_DATA_HOME=str(log.parent / "home"), **variables),
            stdout=out,
            stderr=out,
        )
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def all_over(codes: list[int | None]) -> bool:
    """Whether all have ended, or one has failed."""
    return None not in codes or any(codes)


def test_members_with_files_of_their_own_train_an_offered_run(tmp_path: Path) -> None:
    # Given: an offer at its host, and two members who have its files and their own rows
    researcher = tmp_path / "researcher"
    table(researcher / "public.csv", 300, seed=9)
    data = {"test": "public.csv"}
    offer = packed(researcher, federations_run(run={"updates": 24}, data=data))
    folders = {number: fetched(offer, tmp_path / f"member-{number}") for number in MEMBERS}
    rows = {
        number: table(folder / "rows" / "mine.csv", 350, number)
        for number, folder in folders.items()
    }
    with mosquitto(tmp_path) as broker:
        common = {"broker": f"{HOST}:{broker.port}", "run_id": "doses-1"}
        host = {
            "offer": offer.folder,
            "offer_test": offer.test,
            "store": f"sqlite:///{tmp_path}/store.db",
            "out": tmp_path / "out",
            "receipts": tmp_path / "receipts.key",
            "http": f"127.0.0.1:{free_port()}",
        }
        # When: one of them states how many rows it has, the other does not
        with (
            process("aggregator", tmp_path / "aggregator.log", **common, **host) as aggregator,
            process("edge", tmp_path / "one.log", **common, **_member(folders, rows, 3)) as one,
            process(
                "edge",
                tmp_path / "other.log",
                **common,
                **_member(folders, rows, 1200),
                offer_rows=320,
            ) as other,
        ):
            every = (aggregator, one, other)
            wait_for(lambda: all_over([each.poll() for each in every]), 3 * PATIENCE)
            codes = [each.returncode for each in every]
    # Then
    logs = [path.read_text() for path in tmp_path.glob("*.log")]
    assert codes == [0, 0, 0], logs
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["applied"] == 24
    assert summary["test_accuracy"] > 0.8
    rates = {name: edge["sampling_rate"] for name, edge in summary["privacy"]["edges"].items()}
    assert rates == {"edge-3": 50 / 400, "edge-1200": 50 / 320}


def _member(folders: dict[int, Path], rows: dict[int, Path], number: int) -> dict[str, object]:
    return {
        "offer": folders[number],
        "offer_data": rows[number],
        "identity": number,
        "identities": folders[number] / "identities",
    }


def test_a_byte_changed_in_a_file_of_the_model_starts_no_member(tmp_path: Path) -> None:
    # Given: a model that the researcher's machine has frozen
    researcher = tmp_path / "researcher"
    researcher.mkdir()
    (researcher / "nets.py").write_text(NETS)
    model = {"name": "python", "entry": "nets:net", "arguments": {"width": 2, "hidden": 3}}
    offer = packed(researcher, federations_run(model=model))
    place = fetched(offer, tmp_path / "member")
    rows = table(tmp_path / "mine.csv", 300, 5)
    values = place / "model.safetensors"
    content = bytearray(values.read_bytes())
    content[-1] ^= 1
    values.write_bytes(content)
    # When: nobody listens, so that an edge that started would wait
    settings = {
        "offer": place,
        "offer_data": rows,
        "identity": 3,
        "broker": f"{HOST}:{free_port()}",
    }
    with process("edge", tmp_path / "edge.log", identities=tmp_path / "ids", **settings) as edge:
        wait_for(lambda: edge.poll() is not None)
    # Then
    assert edge.returncode == DataError.exit_code
    log = (tmp_path / "edge.log").read_text()
    assert "model.safetensors: is not the file that was offered" in log
    assert not (tmp_path / "home").exists()  # no ledger knows the rows
