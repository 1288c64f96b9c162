"""An edge whose messages do not arrive says so, and seldom."""

from __future__ import annotations

from pathlib import Path

import pytest
from tacit_services.transport.flight import DROPS
from tacit_services.worker.unheard import TRIES, Unheard

from tests.helpers.processes import deployment
from tests.helpers.run_files import MAPA, toml
from tests.helpers.servers import PATIENCE, mosquitto, wait_for

RUN = toml(
    MAPA,
    run={"updates": 12},
    privacy={"batch": 32, "noise_multiplier": 1.0, "epsilon": 100.0},
    edges={"count": 1},
)


def test_it_is_said_after_a_few_tries_and_then_after_twice_as_many(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unheard = Unheard("edge-0")
    for _ in range(20 * TRIES):
        unheard.again(7, 3000)
    assert [record.args for record in caplog.records] == [
        (7, TRIES * times, 3000) for times in (1, 2, 4, 8, 16)
    ]


def test_whoever_is_heard_has_nothing_to_say(caplog: pytest.LogCaptureFixture) -> None:
    unheard = Unheard("edge-0")
    # Of each message something arrives, or it is told to wait, or it is another message.
    for number in range(10 * TRIES):
        unheard.again(7, 3000)
        unheard.answered((number,))
    for _ in range(10 * TRIES):
        unheard.again(8, 3000)
        unheard.answered(())
    for number in range(10 * TRIES):
        unheard.again(100 + number, 3000)
    assert not caplog.records
    # The same parts are missing every time.
    for _ in range(TRIES + 1):
        unheard.again(9, 3000)
        unheard.answered((0, 1))
    assert len(caplog.records) == 1


def test_a_broker_that_drops_larger_messages_in_silence_is_told_of(tmp_path: Path) -> None:
    # Given a broker that acknowledges what is larger than its limit, and hands nothing on,
    with mosquitto(tmp_path, "message_size_limit 400") as broker:
        address = f"{broker.host}:{broker.port}"
        with deployment(tmp_path, RUN, address, "memory://", "small") as run:
            run.aggregator()
            run.edge(0, TACIT_PATIENCE="0.2")
            # then its edge does not send for ever in silence.
            warning = "has not come to the aggregator in 10 tries"
            wait_for(
                lambda: any(warning in log.read_text() for log in run.folder.glob("edge-*.log"))
            )


@pytest.mark.parametrize("who", ["edge", "aggregator"])
def test_a_broker_that_drops_the_connection_at_little_is_told_of_and_tried_again(
    tmp_path: Path, who: str
) -> None:
    # Given a broker that takes less than a Hello, or the announcement of a run,
    with mosquitto(tmp_path, "max_packet_size 400") as broker:
        address = f"{broker.host}:{broker.port}"
        with deployment(tmp_path, RUN, address, "memory://", "small") as run:
            service = run.edge(0, TACIT_PATIENCE="0.2") if who == "edge" else run.aggregator()
            (log,) = run.folder.glob(f"{who}-*.log")
            # then it says so once while they end in a row. On a busy machine a connection may last
            # longer, and the count begins again.
            warning = "connections in a row ended at once"

            def after_the_first() -> str:
                return log.read_text().partition(warning)[2]

            wait_for(lambda: after_the_first().count("connection lost") > 1, 2 * PATIENCE)
            next_ones = after_the_first().split("connection lost")[: DROPS - 1]
            assert warning not in "".join(next_ones)
            assert service.process is not None
            assert service.process.poll() is None


def test_a_broker_that_drops_the_connection_ends_the_service_with_its_size(tmp_path: Path) -> None:
    # Given a broker that takes what is small, and no model of this run,
    model = toml(RUN, model={"name": "mlp", "hidden": [64]})
    with mosquitto(tmp_path, "max_packet_size 6000") as broker:
        address = f"{broker.host}:{broker.port}"
        with deployment(tmp_path, model, address, "memory://", "small") as run:
            service = run.aggregator()
            run.edge(0, TACIT_PATIENCE="0.2")
            # then it is tried a few times, and ends with one line.
            process = service.process
            assert process is not None
            wait_for(lambda: process.poll() is not None, 2 * PATIENCE)
            assert service.wait() == 4
            (log,) = run.folder.glob("aggregator-*.log")
            lines = log.read_text().splitlines()
            assert "drops the connection at a message of" in lines[-1]
            assert sum("connection lost" in line for line in lines) >= DROPS
