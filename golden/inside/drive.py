"""A run in process, in turns and without a clock.

Its roles have real ledgers, and noise from a seed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from golden.layout import (
    GossipSection,
    Ledger,
    Model,
    Outgoing,
    Party,
    Push,
    Random,
    Releaser,
    RunFile,
    ServerRole,
    Simulator,
    Trusted,
    Update,
    VaflSection,
    Worker,
    dataset_of,
    datasets,
    parts,
    plans_by_name,
    received,
    roles,
)

SALT = b"tacit"


@dataclass(frozen=True, slots=True)
class Roles:
    """The server's at the end of a run, and those of workers that have a model of their own."""

    server: ServerRole
    workers: Sequence[Worker | Party] = ()

    def models(self) -> dict[str, Tensor]:
        """Of the workers, by name."""
        return {
            role.edge: role.theta if isinstance(role, Party) else role.trained.params
            for role in self.workers
        }


def driven(run: RunFile, root: Path | None, seed: int) -> Roles:
    """The roles at the end of `run`."""
    model = run.build_model()
    if isinstance(run.algorithm, VaflSection):
        return _vertical(run, model, root, seed)
    rows = parts(run, root)
    edges = [
        roles.edge(run, f"edge-{number}", mine, model, _releaser(run, number, len(mine), seed))
        for number, mine in enumerate(rows)
    ]
    server = roles.server(run, model)
    if isinstance(run.algorithm, GossipSection):
        peers = [role for role in edges if isinstance(role, Worker)]
        _gossip(server, peers)
        return Roles(server, peers)
    simulator = Simulator if run.privacy.noise_at == "edge" else _TrustedSimulator
    return Roles(_in_turns(simulator(run, server, edges)))


def _releaser(run: RunFile, number: int, rows: int, seed: int) -> Releaser:
    return Releaser(
        run.plan(number, rows), Ledger(":memory:", dataset_of(run)), Random(seed + number)
    )


def _vertical(run: RunFile, model: Model, root: Path | None, seed: int) -> Roles:
    splits = datasets.splits(dataset_of(run), root)
    parties = [
        roles.party(
            run, f"edge-{number}", number, splits, SALT, Ledger(":memory:", dataset_of(run)), random
        )
        for number, random in enumerate(Random(seed + number) for number in range(run.edges.count))
    ]
    server = roles.server(run, model, roles.people(run, splits, SALT))
    return Roles(_in_turns(Simulator(run, server, parties)), parties)


def _in_turns(simulator: Simulator) -> ServerRole:
    """Every edge says Hello, then whoever has been given a task first answers first, to the end."""
    for name in simulator.edges:
        simulator.greet(name)
    while not simulator.server.halted:
        simulator.answer(next(iter(simulator.tasks)))
    return simulator.server


class _TrustedSimulator(Simulator):
    """A trusted aggregator's: what edges send is noised before it is folded."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        run = self.run_file
        self._noise = Trusted(":memory:", dataset_of(run), plans_by_name(run), Random(run.run.seed))

    def fold(self, message: object) -> None:
        """See Simulator.fold."""
        if isinstance(message, Update):
            released = self._noise.release(message.edge, message.vector, self.server.clip)
            message = received(Push(message.edge, message.base_version, released))
        super().fold(message)  # type: ignore[arg-type]


def _gossip(server: ServerRole, peers: Sequence[Worker]) -> None:
    """Peers step in turn, and messages arrive at once, until T steps are known to everybody who
    still steps.
    """
    by_name = {role.edge: role for role in peers}
    for role in peers:
        role.here = set(role.neighbours)
        _tell(server, role.start())
    while not all(role.finished for role in peers):
        for role in peers:
            params, said = role.begin()
            _deliver(by_name, said)
            if params is not None:
                _deliver(by_name, role.finish(role.gradient(params)))
    for role in peers:
        _tell(server, role.report())


def _deliver(peers: dict[str, Worker], said: list[Outgoing]) -> None:
    under_way = deque(said)
    while under_way:
        out = under_way.popleft()
        under_way.extend(peers[out.to].hear(out.message))  # type: ignore[arg-type]


def _tell(server: ServerRole, said: list[Outgoing]) -> None:
    for out in said:
        server.on_message(received(out.message))
