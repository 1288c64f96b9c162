"""The demonstration behind `tacit demo inversion`: what a curious subscriber can see.

The victims are real edge roles, each with a ledger; every push goes through `release()`, the wire
format and the broker. The attacker has what any subscriber has: the bytes, the public model and the
protocol. Each victim holds one record, or one batch of 12: the case that differential privacy is
about, where the attacker knows all records but one. The server is curious, too: it asks for answers
to the same model again and again, so that noise averages out.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from tacit_services.aggregator.ingest.reassembly import Reassembly
from tacit_services.children.processes import Child, StartedServer, start_broker
from tacit_services.transport.mqtt import Connection, Inbound
from torch import Tensor

from tacit import datasets
from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.algorithms.mapa.mapa import WAYS
from tacit.audit.inversion import cosine, invert, psnr
from tacit.datasets import Dataset
from tacit.errors import DataError, ServiceError
from tacit.models import Model, build
from tacit.privacy.accounting import History, epsilon_pld
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.choice import private_sum
from tacit.privacy.release import Mechanism, Plan, Releaser
from tacit.protocol import topics, wire, wire_up
from tacit.protocol.messages import GlobalModel, Push, Update

RUN = "demo-inversion"
SIDE = 28  # MNIST's size, to which bundled digits are enlarged: 7,850 parameters, as in the paper
# C is about the norm of one image's gradient
CLIP = 10.0
DELTA = 1e-5
MANY = 12  # the paper's batch size
CHUNK = 256 * 1024
PATIENCE = 30.0  # seconds for one victim's pushes to come through the broker


@dataclass(frozen=True, slots=True)
class Condition:
    """One way to protect a push, or not: its name, its claimed ε, and the edge's plan.

    `per_push`: the claim is for each push by itself, not for all together.
    """

    key: str
    name: str
    claimed: float | None
    per_push: bool
    plan: Plan


@dataclass(frozen=True, slots=True)
class AttackOutcome:
    """The attacker's result under one condition, from `pushes` pushes of every victim.

    Numbers are means over the victims.
    """

    condition: Condition
    pushes: int
    images: tuple[Tensor, ...]  # (28, 28) each
    cosine: float
    psnr: float
    label_rate: float
    epsilon: float  # by the ledger that came over the wire


@dataclass(frozen=True, slots=True)
class Findings:
    """The victims' true images, and the outcomes by condition and number of pushes."""

    dataset: str
    broker: str
    originals: tuple[Tensor, ...]
    outcomes: tuple[AttackOutcome, ...]


class Eavesdropper:
    """A subscriber of the uplink that decodes, counts and adds up the messages of every edge."""

    def __init__(self, schema: bytes, size: int) -> None:
        self._schema = schema
        self._size = size
        self._reassembly = Reassembly(1 << 24)
        self._changed = threading.Condition()
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self._views: dict[tuple[str, int], tuple[Tensor, History]] = {}
        self._counts_of_interest: frozenset[int] = frozenset()

    def want(self, pushes: frozenset[int]) -> None:
        """Keep the mean after each of these numbers of pushes."""
        self._counts_of_interest = pushes

    def hear(self, inbound: Inbound) -> None:
        """Take one MQTT message. Called on the network thread."""
        edge, seq, payload = topics.sender(inbound.topic, inbound.payload)
        envelope = self._reassembly.add(edge, seq, payload)
        if envelope is not None and seq:
            message = wire_up.read_up(wire.decode(envelope), self._schema, self._size)
            if isinstance(message, Update):
                self._count(message)
        inbound.done()

    def view(self, edge: str, pushes: int) -> tuple[Tensor, History]:
        """Return the mean of the first `pushes` pushes of `edge`, and its ledger at that time.

        Raises ServiceError where they do not come within PATIENCE seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: (edge, pushes) in self._views, PATIENCE):
                raise ServiceError(
                    f"broker: {self._counts.get(edge, 0)} of {pushes} pushes came in {PATIENCE:g} s"
                )
            return self._views[edge, pushes]

    def _count(self, update: Update) -> None:
        edge = update.edge
        gradient = update.vector.to(torch.float64)
        with self._changed:
            self._sums[edge] = self._sums[edge] + gradient if edge in self._sums else gradient
            count = self._counts[edge] = self._counts.get(edge, 0) + 1
            if count in self._counts_of_interest:
                self._views[edge, count] = (self._sums[edge] / count, update.spent)
            self._changed.notify_all()


def conditions(pushes: int) -> tuple[Condition, ...]:
    """Return the conditions to compare: no privacy, the paper's noise, and tacit's.

    The paper's noise is made for its own ε per push, tacit's is calibrated for ε over all `pushes`.
    """

    def plan(mechanism: Mechanism, batch: int = 1, paper_epsilon: float = 0.1) -> Plan:
        return Plan(
            mechanism=mechanism,
            sampling_rate=1.0,
            batch=batch,
            noise_multiplier=0.0,
            clip_min=CLIP,
            clip_max=CLIP,
            epsilon=1.0,
            delta=DELTA,
            paper_epsilon=paper_epsilon,
        )

    def ours(epsilon: float) -> Plan:
        return Plan.calibrated(
            epsilon=epsilon,
            delta=DELTA,
            pushes=pushes,
            sampling_rate=1.0,
            batch=1,
            clip_min=CLIP,
            clip_max=CLIP,
        )

    return (
        Condition("none", "no privacy", None, False, plan("none")),
        Condition("none-12", f"no privacy, batch of {MANY}", None, False, plan("none", MANY)),
        Condition("paper-1", "paper, “ε = 1” per push", 1.0, True, plan("paper", 1, 1.0)),
        Condition("paper-0.1", "paper, “ε = 0.1” per push", 0.1, True, plan("paper", 1, 0.1)),
        Condition(
            "paper-0.1-12",
            f"paper, “ε = 0.1”, batch of {MANY}",
            0.1,
            True,
            plan("paper", MANY, 0.1),
        ),
        Condition("paper-0.01", "paper, “ε = 0.01” per push", 0.01, True, plan("paper", 1, 0.01)),
        Condition("tacit-8", "tacit, ε = 8 in total", 8.0, False, ours(8.0)),
        Condition("tacit-2", "tacit, ε = 2 in total", 2.0, False, ours(2.0)),
    )


def load(data: Path | None) -> Dataset:
    """Return the images to attack: MNIST's from the folder `data`, or without it bundled digits.

    The bundled digits are enlarged to 28×28.
    """
    if data is not None:
        return datasets.load("mnist", "train", data)
    digits = datasets.load("digits", "train", None)
    x = torch.nn.functional.interpolate(
        digits.x, size=(SIDE, SIDE), mode="bilinear", align_corners=False
    )
    return Dataset(x.clamp(0, 1), digits.y, digits.classes, digits.name)


def pick(table: Dataset, victims: int, seed: int) -> list[Dataset]:
    """Choose MANY rows of one digit for every victim; the first row is the record under attack.

    Victims get different digits until all digits are used. Raises DataError where a digit has too
    few rows.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(table), generator=generator)
    digits = torch.randperm(table.classes, generator=generator).tolist()
    chosen = []
    for number in range(victims):
        rows = order[table.y[order] == digits[number % table.classes]]
        start = MANY * (number // table.classes)
        chosen.append(table.take(rows[start : start + MANY]))
        if len(chosen[-1]) < MANY:
            raise DataError(f"{table.name}: too few images of one digit for {victims} victims")
    return chosen


def run(
    table: Dataset, pushes: tuple[int, ...], victims: int, seed: int, say: Callable[[str], None]
) -> Findings:
    """Start a broker, let every victim push under every condition, and attack.

    Raises ServiceError where a push does not come, DataError where the data has too few images.
    """
    model = build("logistic", tuple(table.x.shape[1:]), table.classes)
    chosen = pick(table, victims, seed)
    outcomes = []
    with TemporaryDirectory(prefix="tacit-demo-") as folder, _broker(Path(folder)) as service:
        schema = hashlib.sha256(model.schema().encode()).digest()
        spy = Eavesdropper(schema, model.size)
        spy.want(frozenset(pushes))
        with (
            _connected(service.address, "eavesdropper", [topics.up_all(RUN)], spy.hear),
            _connected(service.address, "edges", [], lambda inbound: inbound.done()) as connection,
        ):
            say(
                f"a subscriber of {topics.up_all(RUN)} on {service.kind}; {victims} victims, "
                f"{max(pushes)} pushes each"
            )
            for condition in conditions(max(pushes)):
                for number, rows in enumerate(chosen):
                    role = _victim(condition, number, rows, model)
                    _push(role, model.init(0), max(pushes), schema, connection)
                    spy.view(role.edge, max(pushes))  # so that the broker's queue stays short
                outcomes += [
                    _attack(condition, count, spy, chosen, model) for count in sorted(pushes)
                ]
                say(f"{condition.name}: done")
    originals = tuple(rows.x[0, 0] for rows in chosen)
    return Findings(table.name, service.kind, originals, tuple(outcomes))


def _victim(condition: Condition, number: int, rows: Dataset, model: Model) -> GradientEdge:
    name = f"{condition.key}-v{number}"
    part = rows.take(torch.arange(int(condition.plan.batch)))
    # The data is public and pushed once, so the ledger need not outlive the demonstration.
    ledger = Ledger(":memory:", name)
    plan = condition.plan
    random = Random()
    summed = private_sum(part, model, plan, random, ways=WAYS)
    return GradientEdge(name, model, Releaser(plan, ledger, random), summed)


def _push(
    role: GradientEdge, params: Tensor, pushes: int, schema: bytes, connection: Connection
) -> None:
    """Publish `pushes` answers to the same model, as an edge does."""
    task = GlobalModel(0, params, CLIP)
    for seq in range(1, pushes + 1):
        (out,) = role.on_message(task)
        assert isinstance(out.message, Push)
        for part, payload in enumerate(
            wire.split(wire_up.up(RUN, seq, out.message, schema), CHUNK)
        ):
            connection.publish(topics.up(RUN, role.edge, seq, part), payload)
    role.releaser.ledger.close()


def _attack(
    condition: Condition, pushes: int, spy: Eavesdropper, chosen: list[Dataset], model: Model
) -> AttackOutcome:
    images = []
    cosines = []
    ratios = []
    hits = 0
    spent = 0.0
    for number, rows in enumerate(chosen):
        gradient, history = spy.view(f"{condition.key}-v{number}", pushes)
        inverted = invert(gradient, model.shape, model.classes)
        batch = rows.x[: int(condition.plan.batch)]
        # Both are to the nearest record of the batch.
        cosines.append(max(cosine(inverted.image, image) for image in batch))
        ratios.append(max(psnr(inverted.image, image) for image in batch))
        hits += inverted.label == int(rows.y[0])
        spent = max(spent, epsilon_pld(history, DELTA))
        images.append(inverted.image[0])
    count = len(chosen)
    return AttackOutcome(
        condition,
        pushes,
        tuple(images),
        math.fsum(cosines) / count,
        math.fsum(ratios) / count,
        hits / count,
        spent,
    )


@contextmanager
def _broker(folder: Path) -> Iterator[StartedServer]:
    children: list[Child] = []
    try:
        yield start_broker(folder, children)
    finally:
        for child in children:
            child.stop()


@contextmanager
def _connected(
    broker: str, name: str, subscriptions: list[str], on_message: Callable[[Inbound], None]
) -> Iterator[Connection]:
    connection = Connection(broker, f"{RUN}-{name}", subscriptions, on_message)
    connection.start(20.0)
    try:
        yield connection
    finally:
        connection.stop()
