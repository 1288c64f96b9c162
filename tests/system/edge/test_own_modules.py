"""Attacks by an aggregator that only sends models, on own modules in real edges behind a real broker.

*An exception is a message*: a module that solves a linear system was made singular for one record.
That ended the edge, and the wire said "left": ε at least 2.79 of 0.07 claimed a push. *A branch on
numbers is a clock*: a module that computes until it is sure took three times as long for one record:
ε at least 1.70 of 0.059. Here the same records tell no more than is claimed.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from tacit import config
from tacit.privacy.accounting import Spend, epsilon_pld
from tests.helpers import own_modules
from tests.helpers.model_sender import ModelSender, await_pushes, sending
from tests.helpers.own_modules import WIDTH, against
from tests.helpers.processes import Deployment, deployment
from tests.helpers.run_files import toml
from tests.helpers.servers import HOST, Server, mosquitto

ROWS, Z, CLIP, DELTA = 16, 5.0, 1.0, 1e-5
FALSE_ALARM = 1e-3  # of both sides of a bound together
WITH, WITHOUT = True, False


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    with mosquitto(tmp_path) as server:
        yield server


def run_text(entry: str, *, rate: float, **model: str) -> str:
    model_section = {"name": "python", "entry": f"own_modules:{entry}"} | model
    data = {"kind": "arrays", "train": "rows.npz", "shape": [WIDTH], "low": 0.0, "high": 1.0}
    return toml(
        run={"name": "own", "updates": 10**6},
        data=data | {"dataset": None, "classes": 2, "rows": ROWS, "rows_max": ROWS},
        model=model_section,
        algorithm={"name": "mapa", "smoothness": 1.0, "deviation": 1.0},
        privacy={
            "noise_multiplier": Z,
            "clip": CLIP,
            "batch": rate * ROWS,
            "epsilon": 10**5,
            "delta": DELTA,
        },
        edges={"count": 1},
    )


def rows(*, record: bool) -> tuple[Tensor, Tensor]:
    """Return x, y of an edge; with `record`, the record is the first."""
    x = torch.rand(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))
    x[0] = 1.0
    y = torch.arange(ROWS) % 2
    return (x, y) if record else (x[1:], y[1:])


@contextmanager
def attacked(
    folder: Path, broker: Server, text: str, *, record: bool
) -> Iterator[tuple[Deployment, ModelSender]]:
    """Yield a run of one edge, whose process is still to be started, and its model sender."""
    folder.mkdir()
    x, y = rows(record=record)
    np.savez(folder / "rows.npz", x=x.numpy(), y=y.numpy())
    shutil.copy(own_modules.__file__, folder / "own_modules.py")
    address = f"{HOST}:{broker.port}"
    with deployment(folder, text, address, f"sqlite:///{folder}/store.db", folder.name) as run:
        model = config.load(run.file).build_model()
        params = model.init(1)
        hostile(model.unflatten(params), rows(record=True)[0][0])
        with sending(run, model, params, CLIP) as sender:
            yield run, sender


def hostile(params: dict[str, Tensor], target: Tensor) -> None:
    """Make the model singular, or never sure, for the target alone."""
    if "a.weight" in params:
        against(params, target)
        return
    for part in params.values():
        part.zero_()
    params["sure.weight"].fill_(-200.0)
    params["sure.bias"].fill_(
        750.0
    )  # -50 for the record, whose numbers are 1, and above 0 for others


def more_than(inside: list[float], outside: list[float]) -> float:
    """Return the ε that `value > threshold` proves, but for FALSE_ALARM.

    The threshold is chosen on a quarter of the pushes, and the bounds (Clopper-Pearson) are of the
    others; either side may be the larger.
    """
    bound = 0.0
    for sample, other in ((inside, outside), (outside, inside)):
        cut = min(len(sample), len(other)) // 4
        tried = np.quantile(sample[:cut] + other[:cut], np.linspace(0.01, 0.99, 99))
        first = [_epsilon(sample[:cut], other[:cut], at) for at in tried]
        bound = max(bound, _epsilon(sample[cut:], other[cut:], tried[int(np.argmax(first))]))
    return bound


def _epsilon(sample: list[float], other: list[float], threshold: float) -> float:
    share = FALSE_ALARM / 4  # two bounds for each of two sides
    hits = sum(value > threshold for value in sample)
    alarms = sum(value > threshold for value in other)
    least = stats.beta.ppf(share, hits, len(sample) - hits + 1) if hits else 0.0
    most = (
        stats.beta.ppf(1 - share, alarms + 1, len(other) - alarms) if alarms < len(other) else 1.0
    )
    return max(0.0, float(np.log(max(least - DELTA, 1e-300) / most)))


def shares(sender: ModelSender, first: int, last: int) -> list[float]:
    """Return the times in units of the edge's own lower quartile.

    The edge measures its delay D, a public number, when it starts.
    """
    some = sender.seconds[first:last]
    return [float(duration) for duration in np.array(some) / np.quantile(some, 0.25)]


def claimed(rate: float) -> float:
    return epsilon_pld((Spend(rate, Z, 1, "discrete_gaussian"),), DELTA)


@pytest.mark.parametrize("kind", ["Solve", "Coded"])
def test_a_record_that_the_module_raises_at_ends_no_edge(
    kind: str, tmp_path: Path, broker: Server
) -> None:
    with attacked(
        tmp_path / "on", broker, run_text(kind, rate=1.0, control_flow="trusted"), record=True
    ) as (run, sender):
        edge = run.edge(0, XDG_DATA_HOME=str(run.folder))
        await_pushes(sender, edge, 5)  # of which each has the record in it
        assert sender.presence == ["online"]
        assert edge.signal(signal.SIGTERM) == 0
        assert "Traceback" not in edge.log
        assert "singular" not in edge.log


def test_a_module_that_computes_until_it_is_sure_is_refused(tmp_path: Path, broker: Server) -> None:
    folder = tmp_path / "on"
    folder.mkdir()
    np.savez(folder / "rows.npz", x=rows(record=True)[0].numpy(), y=rows(record=True)[1].numpy())
    shutil.copy(own_modules.__file__, folder / "own_modules.py")
    address, store = f"{HOST}:{broker.port}", f"sqlite:///{folder}/store.db"
    with deployment(folder, run_text("Ponder", rate=1.0), address, store, "on") as run:
        edge = run.edge(0, XDG_DATA_HOME=str(run.folder))
        assert edge.wait() == 2
        assert 'model.control_flow="trusted"' in edge.log
        assert "Traceback" not in edge.log


def both_worlds(
    folder: Path, broker: Server, text: str, edges: int, pushes: int
) -> dict[bool, list[ModelSender]]:
    """Return what is seen of `edges` edges with the record, and of as many without.

    One of each runs beside the other, so that the machine is as busy for both.
    """
    senders: dict[bool, list[ModelSender]] = {WITH: [], WITHOUT: []}
    for number in range(edges):
        with ExitStack() as end:
            begun = []
            for record in (WITH, WITHOUT):
                name = f"{'in' if record else 'ex'}-{number}"  # of one length, as a message has it in it
                world = attacked(folder / name, broker, text, record=record)
                run, sender = end.enter_context(world)
                begun.append((sender, run.edge(0, XDG_DATA_HOME=str(run.folder))))
                senders[record].append(sender)
            for sender, edge in begun:
                await_pushes(sender, edge, pushes, 20 * 60)
            for _, edge in begun:
                assert edge.signal(signal.SIGTERM) == 0
    return senders


@pytest.mark.exhaustive
def test_a_record_that_the_module_raises_at_tells_no_more_than_is_claimed(
    tmp_path: Path, broker: Server
) -> None:
    rate, warm = 0.25, 5
    senders = both_worlds(
        tmp_path, broker, run_text("Solve", rate=rate, control_flow="trusted"), edges=4, pushes=65
    )
    times = {
        which: [t for sender in senders[which] for t in shares(sender, warm, 65)]
        for which in senders
    }
    assert {tuple(sender.presence[:1]) for which in senders for sender in senders[which]} == {
        ("online",)
    }
    assert {"offline"} & {
        word for which in senders for sender in senders[which] for word in sender.presence
    } == (set())
    lengths = {
        which: [float(n) for sender in senders[which] for n in sender.lengths] for which in senders
    }
    assert more_than(lengths[WITH], lengths[WITHOUT]) <= claimed(rate)
    assert more_than(times[WITH], times[WITHOUT]) <= claimed(rate)


@pytest.mark.exhaustive
def test_what_a_trusted_module_tells_by_its_time_is_held_back(
    tmp_path: Path, broker: Server
) -> None:
    text = run_text("Ponder", rate=0.5, control_flow="trusted")
    senders = both_worlds(tmp_path, broker, text, edges=2, pushes=45)
    times = {
        which: [t for sender in senders[which] for t in shares(sender, 5, 45)] for which in senders
    }
    assert more_than(times[WITH], times[WITHOUT]) <= claimed(0.5)
