"""`tacit predict`: parties over a real broker release embeddings after the run's end, and pay for
them.

The fast tests run driver and parties as threads, with the aggregator's own REST interface before
them.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import torch
from tacit_client import ApiError, Client, Predictions
from tacit_services.aggregator.api.operator import Operator
from tacit_services.aggregator.api.routes import create_app
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.aggregator.vertical.inference import Inference
from tacit_services.cli.main import main
from tacit_services.cli.replay import fold
from tacit_services.journal import journal_file
from tacit_services.journal.journal_file import Writer
from tacit_services.journal.store.append_rules import JournalLimits
from tacit_services.journal.store.memory import MemoryStore
from tacit_services.journal.store_with_file import StoreWithJournalFile
from tacit_services.journal.weights import weights
from tacit_services.testbed import output_folder
from tacit_services.testbed.vertical_predict import predict

from tacit import datasets
from tacit.algorithms.vafl import vafl_algorithm
from tacit.algorithms.vafl.label_server import LabelServer
from tacit.errors import ConfigError
from tacit.privacy.accounting import gdp
from tacit.privacy.ledger import Ledger
from tests.golden.harness import SALT, MqttRun
from tests.helpers.processes import refold
from tests.helpers.rest import TOKEN, serving
from tests.helpers.run_files import Layer, run_file, toml
from tests.helpers.servers import PATIENCE, mosquitto, wait_for

BUDGET = 5  # releases of a record that a party's ε pays for
RUN: Layer = {
    "run": {"updates": 20},
    "algorithm": {"name": "vafl", "width": 4, "combine": "concat", "learning_rate": 0.5},
    "privacy": {"mechanism": "gaussian", "epsilon": 50.0, "batch": 64},
    "edges": {"count": 2},
}


class Trained:
    """A vertical run that has ended and is served on, as `tacit aggregator` with TACIT_LINGER
    does.
    """

    def __init__(self, folder: Path, broker: str, mode: str, pushes: int, *, serves: bool) -> None:
        self.folder, self.file = folder, folder / "run.journal"
        self.run = run_file(RUN, algorithm={"mode": mode}, privacy={"pushes": pushes})
        store = StoreWithJournalFile(
            MemoryStore("predict", JournalLimits(10**6, 1 << 40)),
            Writer(self.file),
            "predict",
            self.run,
        )
        self.mqtt = MqttRun(self.run, broker, store, folder, "predict")
        self.mqtt.serves = serves
        self.live, self.driver = self.mqtt.live, self.mqtt.driver
        self.stop = threading.Event()
        assert isinstance(self.live.role, LabelServer)
        self.inference = Inference(self.live, self.driver, self.live.role, SALT.decode())
        self.operator = Operator(TOKEN)
        run_status = RunStatus(self.run.define(), self.live, folder / "metrics.jsonl")
        self.app = create_app(run_status, self.operator, self.mqtt.model, self.inference)

    def serve(self) -> None:
        """Train, then answer until `stop`."""
        torch.set_num_threads(1)
        self.mqtt.serve()
        connection = self.mqtt.connect()
        try:
            self.driver.linger(self.stop, self.inference.turn)
        finally:
            connection.stop()

    def charged(self) -> list[int]:
        """Return the releases that every party's ledger file has."""
        counts = []
        for number in range(2):
            with closing(Ledger(self.folder / f"ledger-{number}.db", "digits")) as ledger:
                counts.append(ledger.charged().count)
        return counts


@contextmanager
def trained(
    folder: Path, mode: str, pushes: int, *, serves: bool = True
) -> Iterator[tuple[Trained, Client]]:
    """Yield the run, once it has ended, and a client of its REST interface."""
    with mosquitto(folder) as broker:
        trained_run = Trained(folder, f"{broker.host}:{broker.port}", mode, pushes, serves=serves)
        parties, driver = (
            trained_run.mqtt.edge_threads(seed=None),
            threading.Thread(target=trained_run.serve, daemon=True),
        )
        driver.start()
        try:
            wait_for(lambda: trained_run.live.role.halted)
            if not serves:
                for party in parties:
                    party.join(PATIENCE)
            with (
                serving(trained_run.app, trained_run.operator) as url,
                Client(url, TOKEN) as client,
            ):
                yield trained_run, client
        finally:
            trained_run.mqtt.stop.set()
            trained_run.stop.set()
            for thread in (*parties, driver):
                thread.join(PATIENCE)
    assert not trained_run.mqtt.failures


def probabilities(answer: Predictions) -> torch.Tensor:
    return torch.tensor([prediction.probabilities for prediction in answer.predictions])


def refusal(client: Client) -> ApiError:
    """Return the error that asking for one record again and again ends with."""
    for _ in range(3 * BUDGET):
        try:
            client.predict(["digits/test/0/0"])
        except ApiError as error:
            return error
    raise AssertionError("asking never ends")


def test_a_fresh_release_is_charged_until_the_budget_is_spent(tmp_path: Path) -> None:
    ids = ["digits/test/3/0", "digits/train/7/0", "digits/test/3/0"]
    with trained(tmp_path, "fresh", BUDGET) as (run, client):
        before = run.charged()
        answer = client.predict(ids)
        assert [prediction.id for prediction in answer.predictions] == ids[:2]
        assert all(
            prediction.label == prediction.probabilities.index(max(prediction.probabilities))
            for prediction in answer.predictions
        )
        assert torch.allclose(probabilities(answer).sum(1), torch.ones(2))
        with pytest.raises(
            ApiError, match="1 of 2 ids are not among the run's 1797: 'digits/test/360/0'"
        ):
            client.predict(["digits/test/3/0", "digits/test/360/0"])
        with Client(str(client._http.base_url)) as stranger, pytest.raises(ApiError, match="401"):
            stranger.predict(ids)
        # A record that is asked for again and again is paid for each time, until a party cannot:
        # then never again.
        error = refusal(client)
        assert error.status == 410
        assert "edge-" in error.detail
        assert "epsilon=50.0: the next release would pass this party's budget" in error.detail
        assert max(run.charged()) == BUDGET > max(before)
        with pytest.raises(ApiError, match="budget"):
            client.predict(["digits/test/0/0"])
        assert max(run.charged()) == BUDGET
    # The journal has it all: it folds to the model's digest, and to the embeddings that were
    # released.
    assert isinstance(run.live.role, LabelServer)
    sha256 = hashlib.sha256(weights(run.mqtt.model, run.live.role.params)).hexdigest()
    assert fold(run.file).model_sha256 == sha256
    with journal_file.open_journal(run.file) as file:
        payloads = [entry.payload for entry in journal_file.JournalReader(file, "file")]
    role, _ = refold(
        run.run, payloads, vafl_algorithm.labelled_records(datasets.splits("digits", None), SALT)
    )
    assert isinstance(role, LabelServer)
    rows = torch.tensor([1437 + 3, 7])
    assert torch.equal(role.scores(rows), run.live.role.scores(rows))
    assert torch.allclose(role.scores(rows).softmax(1), probabilities(answer), atol=1e-6)


def test_what_was_released_once_for_good_costs_nothing_and_needs_nobody(tmp_path: Path) -> None:
    with trained(tmp_path, "cached", 1, serves=False) as (run, client):
        assert run.charged() == [1, 1]
        first = client.predict(["digits/test/0/0", "digits/train/0/0"])
        assert torch.equal(
            probabilities(first),
            probabilities(client.predict(["digits/test/0/0", "digits/train/0/0"])),
        )
        spent = [gdp.mu(record.spent) for record in run.live.role.edges.values()]
        assert first.epsilon == pytest.approx(gdp.epsilon(gdp.compose(spent), 1e-5))
        assert run.charged() == [1, 1]


def test_a_party_that_is_away_is_named(tmp_path: Path) -> None:
    with trained(tmp_path, "fresh", BUDGET, serves=False) as (_, client):
        with pytest.raises(ApiError, match="no answer from edge-0, edge-1") as refused:
            client.predict(["digits/test/0/0"], 0.5)
        assert refused.value.status == 503


@pytest.mark.parametrize(
    ("marker", "summary"),
    [
        *(
            (marker, '{"run_file_sha256": "x"}')
            for marker in (
                "[]",
                "null",
                "{}",
                "[" * 100_000,
                '{"TACIT_EDGES": "x"}',
                '{"TACIT_RUN_FILE": 5}',
            )
        ),
        ('{"TACIT_RUN_FILE": "run.toml"}', "{}"),
        ('{"TACIT_RUN_FILE": "run.toml"}', "[]"),
    ],
)
def test_a_folder_that_no_run_has_left_is_one_line(
    tmp_path: Path, marker: str, summary: str
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / output_folder.MARKER).write_text(marker)
    (tmp_path / "summary.json").write_text(summary)
    with pytest.raises(ConfigError, match=r"^.*$"):
        predict(tmp_path, lambda client: pytest.fail("asked"))


@pytest.mark.slow
def test_predictions_after_tacit_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def tacit(*arguments: object) -> int:
        with pytest.raises(SystemExit) as exited:
            main([str(argument) for argument in arguments])
        assert isinstance(exited.value.code, int)
        return exited.value.code

    file, out = tmp_path / "run.toml", tmp_path / "out"
    file.write_text(toml(RUN, algorithm={"mode": "fresh"}, privacy={"pushes": 8}))
    assert tacit("predict", out, "--ids", "digits/test/0/0") == 2
    assert "no run of `tacit run` that has ended" in capsys.readouterr().err
    assert tacit("run", file, "--out", out, "--journal", tmp_path / "journal") == 0
    summary = (out / "summary.json").read_text()
    assert fold(tmp_path / "journal").model_sha256 == json.loads(summary)["model_sha256"]
    capsys.readouterr()
    assert tacit("predict", out, "--ids", "digits/test/0/0,digits/train/1/0", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert [prediction["id"] for prediction in answer["predictions"]] == [
        "digits/test/0/0",
        "digits/train/1/0",
    ]
    spent = json.loads(summary)["privacy"]["epsilon"]
    assert answer["epsilon"] > spent
    assert (out / "summary.json").read_text() == summary
    assert tacit("predict", out, "--ids", "nobody") == 3
    assert "1 of 1 ids are not among the run's 1797: 'nobody'" in capsys.readouterr().err
