"""What a researcher asks of one run of a federation, by its name, at the host."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.helpers.federation import federation, run_file, write_rows

BY_POLICY = 'accept = "within"\nlifetime_epsilon = 8.0'


def test_a_run_is_followed_through_a_restart_and_its_model_is_used(tmp_path: Path) -> None:
    with federation(tmp_path, members=1) as (host, (site,)):
        here = ("--federation", host.place)
        host.tacit("submit", run_file(tmp_path, count=1, updates=60), "--name", "retina", *here)
        watching = host.start("watch.log", "runs", "retina", "--watch", *here)
        host.wait(lambda: "nobody is a member yet" in host.text("watch.log"))
        host.kill()
        host.wait_for_text("watch.log", "trying again")
        host.serve()
        site.join(host, BY_POLICY)
        host.wait_run("retina", lambda stands: stands["state"] == "ended")
        assert watching.wait(60) == 0
        assert "the host answers again" in host.text("watch.log")

        (paid,) = json.loads(host.tacit("ledger", "--run", "retina", *here, "--json"))
        assert paid["id"] == "edge-0 (Site 0)"
        assert (paid["pushes"] >= 60, paid["budget_of"]) == (True, "run")
        assert "logistic" in host.tacit("show", "retina", *here)
        host.tacit("export", "model", "--run", "retina", *here)
        card = (host.folder / "model" / "README.md").read_text()
        assert "from tacit.models.zoo.modules import Logistic" in card
        rows = write_rows(host.folder / "new.csv", seed=9, rows=5)
        host.tacit("predict", "retina", "--table", rows, "--out", "by-name.csv", *here)
        host.tacit("predict", "model", "--table", rows, "--out", "by-folder.csv")
        with (host.folder / "by-name.csv").open() as file:
            assert len(list(csv.DictReader(file))) == 5
        predictions = [(host.folder / f"by-{how}.csv").read_text() for how in ("name", "folder")]
        assert predictions[0] == predictions[1]
        host.tacit("results", "retina", "--out", "out", *here)
        summary = json.loads((host.folder / "out" / "summary.json").read_text())
        assert summary["dataset"] == "members' rows"
        assert summary["privacy"]["counts"] == "all runs of the data"


@pytest.mark.exhaustive
def test_a_network_of_ones_own_comes_with_the_results(tmp_path: Path) -> None:
    with federation(tmp_path, members=1) as (host, (site,)):
        here = ("--federation", host.place)
        (tmp_path / "nets.py").write_text(
            "from torch import nn\n\n\ndef net():\n    return nn.Linear(2, 2)\n"
        )
        run = run_file(tmp_path, count=1, updates=20)
        run.write_text(
            run.read_text().replace('name = "logistic"', 'name = "python"\nentry = "nets:net"')
        )
        host.tacit("submit", run, "--name", "own", *here)
        site.join(host, BY_POLICY)
        host.wait_run("own", lambda stands: stands["state"] == "ended")
        host.tacit("results", "own", "--out", "out", *here)
        elsewhere = host.folder / "elsewhere"  # as on another machine, which has no folder of it
        (host.folder / "out").rename(elsewhere)
        definition = json.loads((elsewhere / "definition.json").read_text())
        definition["folder"] = "/nowhere"
        (elsewhere / "definition.json").write_text(json.dumps(definition))
        host.tacit("export", "model", "--run", elsewhere)
        assert "2 numbers" in host.tacit("show", "own", *here)


def test_all_faults_of_a_run_file_are_told_at_once(tmp_path: Path) -> None:
    with federation(tmp_path, members=0) as (host, _):
        run = run_file(tmp_path, epsilon=-1.0, updates=-3)
        run.write_text(run.read_text().replace("rows = 400", 'rows = 400\ntrain = "x.csv"'))
        told = host.tried("submit", run, "--federation", host.place)
        assert told.returncode == 2
        heading, *faults = told.stderr.splitlines()
        assert heading == f"tacit: {run}: 3 faults"
        assert [fault.split("=")[0].split(":")[0].strip() for fault in faults] == [
            "data.train", "run.updates", "privacy.epsilon",
        ]  # fmt: skip
        told = host.tried("stop", "nosuch", "--federation", host.place)
        assert told.returncode == 2
        assert told.stderr.strip().endswith("run 'nosuch': there is none of this name")
        assert "404" not in told.stderr
