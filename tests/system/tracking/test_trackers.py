"""MLflow, TensorBoard and Weights & Biases have what metrics.jsonl has, in a simulated run.

Their libraries have an environment of their own: `make out/tracking/ready`.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.helpers.run_files import MAPA, toml
from tests.helpers.servers import need

PYTHON = ROOT / "out" / "tracking" / "bin" / "python"
pytestmark = pytest.mark.exhaustive
# Each prints {"points": {version: accuracy}, "epsilon": …, "text": all that was kept as words}.
READERS = {
    "mlflow": """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
(run,) = client.search_runs([client.get_experiment_by_name("tacit").experiment_id])
points = {m.step: m.value for m in client.get_metric_history(run.info.run_id, "accuracy")}
files = sorted(each.path for each in client.list_artifacts(run.info.run_id))
assert run.info.status == "FINISHED", run.info.status
text = json.dumps([run.data.params, run.data.tags])
print(json.dumps(dict(points=points, epsilon=run.data.metrics["epsilon"], text=text, files=files)))
""",
    "tensorboard": """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1]).Reload()
points = {each.step: each.value for each in events.Scalars("accuracy")}
text = " ".join(str(each) for tag in events.Tags()["tensors"] for each in events.Tensors(tag))
epsilon = events.Scalars("end/epsilon")[0].value
print(json.dumps(dict(points=points, epsilon=epsilon, text=text)))
""",
    "wandb": """
import json, pathlib, struct, sys
from wandb.proto import wandb_internal_pb2
(path,) = pathlib.Path(sys.argv[1]).glob("wandb/offline-run-*/run-*.wandb")
content = path.read_bytes()
points, summary, text, place, whole = {}, {}, "", 7, b""  # after the mark ":W&B" and a version
def records():  # a log of LevelDB: blocks of 32 KiB, of chunks: checksum, length, kind
    global place, whole
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        size, kind = struct.unpack_from("<HB", content, place + 4)
        whole += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""
for data in records():
    record = wandb_internal_pb2.Record.FromString(data)
    row = {each.key or each.nested_key[0]: json.loads(each.value_json) for each in record.history.item}
    if "version" in row:
        points[row["version"]] = row["accuracy"]
    summary |= {each.key or each.nested_key[0]: each.value_json for each in record.summary.update}
    text += str(record)
print(json.dumps(dict(points=points, epsilon=json.loads(summary["epsilon"]), text=text)))
""",
}


def python(*arguments: str, folder: Path) -> str:
    environment = os.environ | {"WANDB_MODE": "offline", "HOME": str(folder)}
    command = [str(PYTHON) if PYTHON.exists() else need("out/tracking/bin/python"), *arguments]
    process = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return process.stdout


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a simulated run that all three have followed."""
    folder = tmp_path_factory.mktemp("tracking")
    tracking = {"mlflow": "sqlite:///mlflow.db", "tensorboard": "events", "wandb": "wards"}
    text = toml(
        MAPA, run={"updates": 12, "name": "night"}, evaluation={"every": 4}, tracking=tracking
    )
    (folder / "run.toml").write_text(text)
    python("-m", "tacit_services.cli.main", "simulate", "run.toml", "--out", "out", folder=folder)
    return folder


@pytest.mark.parametrize(
    ("name", "place"),
    [("mlflow", "sqlite:///mlflow.db"), ("tensorboard", "events/night"), ("wandb", "out")],
)
def test_a_tracker_has_the_figures_of_the_run(name: str, place: str, followed: Path) -> None:
    tracker: dict[str, Any] = json.loads(python("-c", READERS[name], place, folder=followed))

    text = (followed / "out" / "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    summary = json.loads((followed / "out" / "summary.json").read_text())
    expected = {str(line["version"]): line["accuracy"] for line in lines}
    assert tracker["points"] == pytest.approx(expected, rel=1e-6)
    assert tracker["epsilon"] == pytest.approx(summary["privacy"]["epsilon"], rel=1e-6)
    assert summary["run_file_sha256"] in tracker["text"]
    assert "smoothness" in tracker["text"]
    assert tracker.get("files", ["definition.json", "model.safetensors", "summary.json"]) == [
        "definition.json", "model.safetensors", "summary.json",
    ]  # fmt: skip


def test_none_keeps_where_the_rows_are_or_who_has_run_it(followed: Path) -> None:
    (log,) = (followed / "out").glob("wandb/offline-run-*/run-*.wandb")
    host = os.uname().nodename.encode()
    assert len(host) < 4 or host not in log.read_bytes()
    assert b"requirements.txt" not in log.read_bytes()


def test_a_server_that_is_away_stops_no_run(tmp_path: Path) -> None:
    text = toml(
        MAPA, run={"updates": 8}, tracking={"mlflow": "http://127.0.0.1:9"}
    )  # discard: nobody listens
    (tmp_path / "run.toml").write_text(text)
    script = (
        "import os; os.environ['MLFLOW_HTTP_REQUEST_MAX_RETRIES'] = '0'; "
        "from tacit_services.cli.main import main; main(['simulate', 'run.toml', '--out', 'out'])"
    )
    python("-c", script, folder=tmp_path)
    assert (tmp_path / "out" / "summary.json").exists()
