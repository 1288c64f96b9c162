"""The simulator of a server and its edges: the same roles as over MQTT, in one process.

A virtual clock runs. An event is a message on its way to the server, or the end of the role's
timer. The work of an edge between a model and its answer is computed when the answer arrives, on
the model that it was given. So only models of tasks under way are held. Their number is bounded by
the number of edges, never by the length of the run. An edge at work drops what it is sent
meanwhile, as over MQTT. An edge that is away sends Hello on its return.

With `network.staleness` there is no clock. Each update is a random edge's, on a model whose age is
uniform in {0, …, max}, as in the evaluation of FedAsync (arXiv:1903.03934, section 6).

A vertical party's tasks are a roster, a feedback and a request. Each takes one step's time.

Guarantee: everything is a function of the run file. With edges of seeded noise (`Random(seed)`,
which protects nobody), two simulations end in the same bits.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.vafl.party import Party
from tacit.config.definition import Definition
from tacit.protocol import wire_up
from tacit.protocol.messages import (
    Deadline,
    GlobalModel,
    Halt,
    Hello,
    Outgoing,
    Push,
    Report,
    Retired,
    Timer,
    Update,
)
from tacit.protocol.vertical import Embed, Feedback, Request, Roster
from tacit.simulation import batched_edges
from tacit.simulation.pace import EdgeTimes, seeded_stream

# What an edge, or a vertical party, is given to answer.
Task = GlobalModel | Roster | Feedback | Request
# When, tie-breaker, sender, and the sender's task (None: it says Hello).
_Event = tuple[float, int, str, Task | Timer | None]
_CLOCK = ""  # the sender of a timer
MAX_TOGETHER = 32  # tasks of linear models computed in one call
# The run ends after this many deadlines in a row with no message under way: none will ever come.
MAX_EMPTY_DEADLINES = 4
NOBODY = "nobody is left who could answer"
# The run ends after this many useless answers for each one that an update takes: none will come.
MAX_USELESS_ANSWERS = 50
ALL_LATE = "no answer makes an update any more: each comes after its deadline, or too stale"


def received(message: object) -> Hello | Update | Retired:
    """Return an edge's or a peer's message as `wire_up.read_up` reads it, without bytes."""
    if isinstance(message, Push):
        released = message.released
        vector = wire_up.gradient(released.vector, released.scale)
        return Update(
            message.edge,
            message.base_version,
            vector,
            released.clip,
            released.spent,
            released.charged,
            look=message.look,
        )
    if isinstance(message, Report):
        spent = message.spent
        charged = message.charged
        return Update(
            message.edge, message.version, message.model.vector, 0.0, spent, charged, message.steps
        )
    if isinstance(message, Embed):
        if message.released is None:
            vector = torch.zeros(0)
        else:
            vector = message.released.vectors.flatten()
        spent = message.spent
        charged = message.charged
        return Update(
            message.edge, message.iteration, vector, 0.0, spent, charged, part=message.part
        )
    assert isinstance(message, Hello | Retired)
    return message


class Simulator:
    """Runs one server role and its edges in virtual time.

    Releases that are under way at the end are in no reported ε.

    >>> from tacit import config, datasets
    >>> from tacit.algorithms import registry
    >>> from tacit.algorithms.mapa.mapa import MapaServer
    >>> from tacit.privacy.release import Releaser
    >>> from tacit.privacy.noise.randomness import Random
    >>> from tacit.privacy.ledger.simulated import SimulatedLedger
    >>> text = '''
    ... run.updates = 5
    ... data.dataset = "digits"
    ... model.name = "logistic"
    ... algorithm.name = "mapa"
    ... edges.count = 2
    ... '''
    >>> run = config.parse(text, "example").define()
    >>> model, digits = run.build_model(), datasets.load("digits", "train", None)
    >>> edges = []
    >>> for number in range(2):
    ...     rows = digits.take(datasets.shard(digits.y, number, shards=2, method="iid", seed=1))
    ...     plan = run.plans.plan(number, len(rows))
    ...     releaser = Releaser(plan, SimulatedLedger(), Random(number))
    ...     edges.append(registry.edge(run, f"edge-{number}", rows, model, releaser))
    >>> simulator = Simulator(run, MapaServer(run, model), edges)
    >>> simulator.run()
    >>> simulator.server.version
    5
    """

    def __init__(
        self, definition: Definition[Any], server: ServerRole, edges: Sequence[EdgeRole | Party]
    ) -> None:
        self.definition = definition
        self.server = server
        self._oldest = definition.network.staleness
        self._seed = definition.run.seed
        self.edges: dict[str, EdgeRole | Party] = {role.edge: role for role in edges}
        self.now = 0.0  # virtual seconds
        self.refused = 0  # updates that would not have entered the journal
        self.tasks: dict[str, Task] = {}  # the task of each edge at work
        self._times = {
            role.edge: EdgeTimes(definition, number) for number, role in enumerate(edges)
        }
        self._events: list[_Event] = []
        self._scheduled = self._messages = 0
        self._timer: Timer | None = None
        self._empty_deadlines = self._useless_answers = 0  # answers since the last update
        self._useless_at_most = MAX_USELESS_ANSWERS * max(len(edges), server.uploads)
        # Pushes that were computed together with another edge's task, and are not due yet.
        self._computed_ahead: dict[str, Push] = {}

    def run(self, observe: Callable[[ServerRole], None] = lambda role: None) -> None:
        """Simulate to the end; `observe` sees the role after every message.

        It ends early where nobody can answer any more.
        """
        if self._oldest is not None:
            self._sampled(self._oldest, observe)
            return
        for name, role in self.edges.items():
            pace = self._times[name]
            self._schedule(pace.hello(pace.start(role.task_steps(0))), name)
        while not self.server.halted:
            if not self._events:
                self._deliver(Halt(self.server.version, NOBODY))
                break
            self._step()
            observe(self.server)

    def halt(self, reason: str) -> None:
        """End the run, as an operator would."""
        if not self.server.halted:
            self._deliver(Halt(self.server.version, reason))

    def greet(self, name: str) -> None:
        """Deliver the Hello of edge `name`: it has nothing to work on."""
        self.tasks.pop(name, None)
        for out in self.edges[name].start():
            self.fold(received(out.message))

    def answer(self, name: str) -> None:
        """Deliver what edge `name` has made of its task."""
        task = self.tasks.pop(name)
        push = self._computed_ahead.pop(name, None)
        if push is not None:
            self.fold(received(push))
            return
        for out in self._answer_to(name, task):
            self.fold(received(out.message))

    def _answer_to(self, name: str, task: Task) -> list[Outgoing]:
        role = self.edges[name]
        if isinstance(role, Party):
            assert not isinstance(task, GlobalModel)
            return role.on_message(task)
        assert isinstance(task, GlobalModel)
        return role.on_message(task)

    def fold(self, message: Hello | Update | Retired | Deadline) -> None:
        """Give one message to the server role; its answers go out."""
        if isinstance(message, Update) and self.server.screen(message) is not None:
            self.refused += 1
            return
        self._deliver(message)

    def _deliver(self, message: Hello | Update | Retired | Deadline | Halt) -> None:
        for out in self.server.on_message(message):
            if isinstance(out.message, Task):
                self._assign(out.to, out.message)

    # -- the clock ---------------------------------------------------------------------------------

    def _step(self) -> None:
        self.now, _, sender, content = heapq.heappop(self._events)
        if isinstance(content, Timer):
            self._expire(content)
        else:
            self._messages -= 1
            if content is not None:
                if sender not in self._computed_ahead:
                    self._compute(sender, content)
                before = self.server.version
                self.answer(sender)
                self._count(self.server.version > before)
            elif sender not in self.tasks:  # else it has been given something meanwhile
                self.greet(sender)
        self._keep_time()

    def _count(self, useful: bool) -> None:
        if useful:
            self._useless_answers = 0
        else:
            self._useless_answers += 1
        if self._useless_answers > self._useless_at_most and not self.server.over():
            self._deliver(Halt(self.server.version, ALL_LATE))

    def _compute(self, name: str, task: Task) -> None:
        """Compute the task that is due together with those due next.

        That is allowed because a task's result is a function of model and edge alone.
        """
        if self._batchable(name, task) is None:
            return
        due = heapq.nsmallest(
            MAX_TOGETHER - 1, (event for event in self._events if isinstance(event[3], GlobalModel))
        )
        candidates = [(name, task), *((sender, model) for _, _, sender, model in due)]
        tasks = [
            batchable
            for sender, model in candidates
            if (batchable := self._batchable(sender, model)) is not None
        ]
        self._computed_ahead |= {push.edge: push for push in batched_edges.answer_together(tasks)}

    def _batchable(
        self, name: str, task: Task | Timer | None
    ) -> tuple[EdgeRole, GlobalModel] | None:
        """Return the edge and its task, if the task is not computed yet and can be batched."""
        role = self.edges[name]
        if (
            name in self._computed_ahead
            or isinstance(role, Party)
            or not isinstance(task, GlobalModel)
        ):
            return None
        if batched_edges.batchable(role, task):
            return (role, task)
        return None

    def _expire(self, timer: Timer) -> None:
        if timer != self._timer:
            return
        self._timer = None
        self._deliver(Deadline(timer.number))
        if self._messages:
            self._empty_deadlines = 0
        else:
            self._empty_deadlines += 1
        if self._empty_deadlines >= MAX_EMPTY_DEADLINES or not (
            self._messages or self._anybody_left()
        ):
            self._deliver(Halt(self.server.version, NOBODY))

    def _keep_time(self) -> None:
        timer = self.server.awaited()
        if timer != self._timer and timer is not None:
            self._schedule(self.now + timer.seconds, _CLOCK, timer)
        self._timer = timer

    def _assign(self, name: str, task: Task) -> None:
        if name in self.tasks:
            return
        pace = self._times[name]
        if (back := pace.next_online(self.now)) > self.now:
            self._schedule(pace.hello(back), name)
            return
        self.tasks[name] = task
        steps = self.edges[name].task_steps(task.version if isinstance(task, GlobalModel) else 0)
        self._schedule(pace.task(self.now, steps), name, task)

    def _schedule(self, when: float, sender: str, content: Task | Timer | None = None) -> None:
        if math.isfinite(when):
            self._scheduled += 1
            self._messages += sender != _CLOCK
            heapq.heappush(self._events, (when, self._scheduled, sender, content))

    def _anybody_left(self) -> bool:
        records = self.server.edges
        reachable = (
            name for name, pace in self._times.items() if math.isfinite(pace.next_online(self.now))
        )
        return any(name in records and not records[name].retired for name in reachable)

    # -- sampled staleness -------------------------------------------------------------------------

    def _sampled(self, most: int, observe: Callable[[ServerRole], None]) -> None:
        random = seeded_stream(self._seed, 3)
        names = list(self.edges)
        for name in names:
            self.server.on_message(received(self.edges[name].start()[0].message))
        recent = deque([self.server.global_model()], maxlen=most + 1)
        while names and not self.server.halted:
            name = names[random.randint(len(names))]
            age = random.randint(len(recent))
            answer = [received(out.message) for out in self._answer_to(name, recent[-1 - age])]
            if not all(isinstance(message, Update) for message in answer) or not answer:
                names.remove(name)  # the edge's budget is spent, or its policy refuses
            for message in answer:
                self.server.on_message(message)
            if self.server.version > recent[-1].version:
                recent.append(self.server.global_model())
            observe(self.server)
        if not self.server.halted:
            self.server.on_message(Halt(self.server.version, NOBODY))
