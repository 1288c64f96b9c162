"""The mean of the last models: which they are, and the same bits after a restart and a replay."""

from __future__ import annotations

import json

import pytest
import torch

from tacit.algorithms import registry
from tacit.algorithms.base.model_average import ModelAverage
from tacit.algorithms.base.server import ServerRole
from tacit.errors import ConfigError
from tacit.protocol.messages import Hello, Update
from tests.helpers.run_files import MAPA, run_file

RUN = run_file(MAPA, run={"updates": 40, "average": 0.5})
MODEL = RUN.build_model()


def model_of(version: int) -> torch.Tensor:
    return torch.tensor([float(version)], dtype=torch.float64)


@pytest.mark.parametrize("horizon", [1, 2, 7, 100])
@pytest.mark.parametrize("part", [0.05, 0.5, 0.7, 0.95])
def test_the_mean_is_of_the_last_part_and_exactly_so_at_the_end(part: float, horizon: int) -> None:
    average = ModelAverage(part, horizon)
    for version in range(1, horizon + 1):
        average.add(version, model_of(version))
        mean = average.mean()
        assert mean is not None
        of_it = range(average.since + 1, version + 1)
        assert float(mean) == pytest.approx(sum(of_it) / len(of_it))
        assert average.since <= (1 - part) * version
        # Rounded down, a mark is up to one version earlier, and so is the mark before it.
        assert average.since + 3 > (1 - part) ** 2 * version
    assert average.since == int(horizon * (1 - part))


def test_what_was_returned_is_never_written_into() -> None:
    average = ModelAverage(0.5, 10)
    first = model_of(1)
    average.add(1, first)
    mean = average.mean()
    tensors = average.state()[0]
    average.add(2, model_of(2))
    assert mean is not None
    assert float(mean) == float(first) == 1.0
    assert float(tensors["average.earlier"]) == 1.0


def role() -> ServerRole:
    server = registry.server(RUN.define(), MODEL, None)
    server.on_message(Hello("edge-0", 100.0, 1e-5, "gaussian", 0.1, 0.1, 10.0, ()))
    return server


def push(server: ServerRole, number: int) -> None:
    generator = torch.Generator().manual_seed(number)
    vector = torch.randn(MODEL.size, generator=generator)
    server.on_message(Update("edge-0", server.version, vector, 1.0, ()))


@pytest.mark.parametrize("killed_at", [0, 1, 5, 10, 11, 20, 21, 39])
def test_a_snapshot_goes_on_to_the_same_bits(killed_at: int) -> None:
    whole = role()
    begun = role()
    for number in range(killed_at):
        push(begun, number)
    tensors, values = begun.state()
    resumed = registry.server(RUN.define(), MODEL, None)
    values["edges"] = json.loads(f"{{{values['edges'].text()}}}")
    resumed.restore(tensors, json.loads(json.dumps(values)))
    for number in range(40):
        push(whole, number)
        if number >= killed_at:
            push(resumed, number)
    for server in (whole, resumed):
        assert server.version == 40
        assert server.model_average is not None
    assert whole.model_average is not None
    assert resumed.model_average is not None
    assert torch.equal(mean_of(whole), mean_of(resumed))
    assert not torch.equal(mean_of(whole), whole.params)


def mean_of(server: ServerRole) -> torch.Tensor:
    assert server.model_average is not None
    mean = server.model_average.mean()
    assert mean is not None
    return mean


def test_the_last_model_is_the_same_with_an_average_and_without() -> None:
    plain = run_file(MAPA, run={"updates": 40})
    server = registry.server(plain.define(), MODEL, None)
    server.on_message(Hello("edge-0", 100.0, 1e-5, "gaussian", 0.1, 0.1, 10.0, ()))
    averaged = role()
    for number in range(40):
        push(server, number)
        push(averaged, number)
    assert torch.equal(server.params, averaged.params)
    assert "average" not in server.state()[1]


def test_it_is_part_of_the_run_and_a_stop_is_not() -> None:
    plain = run_file(MAPA, run={"updates": 40})
    assert plain.fingerprint() != RUN.fingerprint()
    assert plain.agreed() == RUN.agreed()  # an edge need not know
    stopped = run_file(MAPA, run={"updates": 40, "stop": "no better"})
    assert (
        stopped.fingerprint() == plain.fingerprint()
    )  # no fold reads it: a Halt is in the journal


@pytest.mark.parametrize("key", [{"average": 0.5}, {"stop": "no better"}])
def test_peers_and_parties_have_no_server_with_the_whole_model(key: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="leave it out"):
        run_file(
            run={"updates": 10, **key},
            algorithm={"name": "adp2sgd"},
            privacy={"noise_multiplier": 1.0, "clip": 1.0, "batch": 32},
        )
