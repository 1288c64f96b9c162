"""The server role that parameter-server algorithms share: a fold of messages into a model.

Idea. The state of a run is what its journal folds to. A role has no I/O, no clock and no
randomness. The aggregator, the replay and the simulator give it the same messages in the same
order, and get the same bits.

What a reader finds. `Fold` is the state that every algorithm has, saved by `state` and continued by
`restore`. `ServerRole` adds the messages: `screen` refuses an update before it enters the journal,
`on_message` folds what entered, `apply` is the algorithm's step, and `answer` is an edge's task. At
the end stand the guard's sums, which weigh an update or accuse its edge.

Guarantee. Every update that enters is counted in its edge's record, also one that is stale, kept
out or too late. It was released, so the reported ε must have it.

>>> from tacit import config
>>> from tacit.algorithms.mapa.mapa import MapaServer
>>> text = '''
... run.updates = 5
... data.dataset = "digits"
... model.name = "logistic"
... algorithm.name = "mapa"
... '''
>>> run = config.parse(text, "example").define()
>>> server = MapaServer(run, run.build_model())
>>> (task,) = server.on_message(Hello("edge-0", 8.0, 1e-5, "gaussian", 0.1, 0.1, 10.0, ()))
>>> update = Update("edge-0", task.message.version, server.params, 1.0, ())
>>> server.screen(update) is None
True
>>> (task,) = server.on_message(update)
>>> task.to, task.message.version, server.version
('edge-0', 1, 1)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from dataclasses import replace
from typing import Any

from torch import Tensor

from tacit.algorithms.base import records
from tacit.algorithms.base.laws import Laws
from tacit.algorithms.base.looks import Looks
from tacit.algorithms.base.model_average import ModelAverage
from tacit.algorithms.base.records import EdgeRecord
from tacit.config.definition import Definition
from tacit.datasets import Dataset
from tacit.models import Model
from tacit.models.bins_read import BinsRead
from tacit.protocol.messages import (
    EVERYONE,
    Deadline,
    GlobalModel,
    Halt,
    Hello,
    LiftQuarantine,
    Outgoing,
    Retired,
    ServerInput,
    Timer,
    Update,
)
from tacit.robust.edge_watch import Watch
from tacit.robust.law import Law

_ALL_APPLIED = "all updates applied"
STALENESS_WINDOW = 200  # τ_max: the largest staleness among this many latest updates


class Fold:
    """The part of a server's state that every algorithm has, and how it is saved and restored."""

    def __init__(self, definition: Definition[Any], model: Model) -> None:
        self.batch = definition.privacy.batch
        self.horizon = definition.run.updates
        self.terms = definition.terms
        self.uploads = definition.traits.uploads  # updates that make one version
        self.update_size = model.size + definition.traits.beside  # numbers of an update
        self.dataset = definition.source.name  # the data set that the edges' ledgers are of
        self.clip = definition.privacy.constant_clip
        self.params = model.init(definition.run.seed)
        self.version = 0
        self.edges = records.Records()
        self.recent: deque[int] = deque(maxlen=STALENESS_WINDOW)
        self.tau_max = 0  # τ_max: the largest of `recent` (0 before any)
        self.staleness: Counter[int] = Counter()
        self.stale = 0
        self.halt_reason = ""
        guard = definition.guard
        # where updates are combined
        self.rule = guard.rule
        self.trim = guard.trim
        self.laws = Laws(definition.plans, guard.rows)
        self.watch: Watch | None = None
        if guard.sums:
            most = definition.plans.workers  # spare ones too
            self.watch = Watch(model.size, most, guard.false_alarm, agreement=guard.agreement)
        self.accused: dict[str, str] = {}  # edges whose updates no longer count, and why
        self.kept_out = 0  # updates left out as their edge was accused, or against the others
        self.looks: Looks | None = None
        if definition.judging is not None:
            self.looks = Looks(definition.judging)
        self.model_average: ModelAverage | None = None
        if definition.run.average is not None:
            self.model_average = ModelAverage(definition.run.average, self.horizon)

    @property
    def halted(self) -> bool:
        """Whether the run is over."""
        return bool(self.halt_reason)

    @property
    def discounted(self) -> frozenset[str]:
        """Edges that work against the others, so that the guard lets them count for little."""
        if self.watch is None:
            return frozenset()
        return self.watch.opposed

    def note_staleness(self, tau: int) -> None:
        """Count an update of staleness τ = `tau`."""
        self.recent.append(tau)
        self.tau_max = max(self.recent)
        self.staleness[tau] += 1

    def global_model(self) -> GlobalModel:
        """Return x_t, t and C as they are sent to an edge."""
        return GlobalModel(self.version, self.params, self.clip, self.terms)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return (tensors, JSON values) from which `restore` continues to the same bits.

        Algorithms add their own. Nothing is ever written into the tensors, nor into `edges`, so
        that another thread may store them while the fold goes on.
        """
        values = {
            "version": self.version,
            "clip": self.clip,
            "recent": list(self.recent),
            "staleness": sorted(self.staleness.items()),
            "stale": self.stale,
            "halted": self.halt_reason,
            "edges": self.edges.dump(),
        }
        tensors = {"params": self.params}
        if self.watch is not None:
            sums, watched = self.watch.state()
            tensors |= sums
            values["watch"] = watched
            values |= {"accused": self.accused, "kept_out": self.kept_out}
        if self.model_average is not None:
            means, averaged = self.model_average.state()
            tensors |= means
            values["average"] = averaged
        if self.looks is not None:
            judged, looks = self.looks.state()
            tensors |= judged
            values["looks"] = looks
        return tensors, values

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.params = tensors["params"]
        self.version = values["version"]
        self.clip = values["clip"]
        self.stale = values["stale"]
        self.halt_reason = values["halted"]
        self.recent = deque(values["recent"], maxlen=STALENESS_WINDOW)
        self.tau_max = max(self.recent, default=0)
        self.staleness = Counter(dict(values["staleness"]))
        self.edges = records.read(values["edges"])
        if self.watch is not None:
            self.watch.restore(tensors, values["watch"])
            self.accused = dict(values["accused"])
            self.kept_out = values["kept_out"]
        if self.model_average is not None:
            self.model_average.restore(tensors, values["average"])
        if self.looks is not None:
            self.looks.restore(tensors, values["looks"])


class ServerRole(Fold, ABC):
    """A fold over the journal, without I/O, clock or randomness.

    What an update does is the algorithm's `apply`.
    """

    max_staleness: int
    in_parts = False  # whether updates fill a part of a table
    one_by_one = True  # whether the model moves without waiting for every edge that is asked

    @abstractmethod
    def apply(self, update: Update, tau: int) -> list[Outgoing]:
        """Apply an update of staleness `tau` to the model; return the messages that follow."""

    @abstractmethod
    def schedule(self) -> dict[str, float]:
        """Return the algorithm's current numbers, to show to people.

        `clip` and `learning_rate` are always among them.
        """

    def clip_at(self, version: int) -> float:
        """Return the C that went out with the model of this version."""
        return self.clip

    def base(self, update: Update) -> Tensor:
        """Return the point (d,) that the update started from; vector - base is its step.

        Called for admitted updates, only with guard.sums.
        """
        raise NotImplementedError

    def law(self, update: Update) -> Law:
        """Return the law that this update keeps if its edge is honest.

        It follows from the run definition, never from the edge's own message. Called for admitted
        updates, only with guard.sums.
        """
        raise NotImplementedError

    def answer(self, edge: str) -> list[Outgoing]:
        """Return the task of `edge`, if it has one. Pure: it may be asked again."""
        return [Outgoing(edge, self.global_model())]

    def admits(self, update: Update, tau: int) -> bool:
        """Check whether the update counts.

        A stale one is charged by its edge, and too old to apply.
        """
        return tau <= self.max_staleness

    def joined(self, edge: str) -> list[Outgoing]:
        """Handle an edge that has connected, perhaps again, and asks for a task."""
        return self.answer(edge)

    def left(self, edge: str) -> list[Outgoing]:
        """Handle an edge that will send no more."""
        return []

    @property
    def waits_to_begin(self) -> bool:
        """Whether a timer of the role's decides when the run begins, and it has not begun."""
        return False

    def refuses(self, hello: Hello) -> str:
        """Return why this edge cannot take part in the run; "" where it can."""
        return ""

    def over(self) -> bool:
        """Check whether the run has reached its end."""
        return self.version >= self.horizon

    def evaluation_input(self, test: Dataset) -> tuple[int, Tensor, Dataset] | None:
        """Return what to evaluate: version, parameters (d,), and `test` as the model sees it.

        None: there is nothing to evaluate yet.
        """
        return self.version, self.params, test

    @property
    def largest(self) -> int:
        """The length of the longest vector that an edge may send."""
        return max(self.params.numel(), 0 if self.looks is None else self.looks.width)

    def bins_read(self) -> BinsRead | None:
        """Return what is known of an additive model's bins; None: of another model, or nothing."""
        return None

    def timer(self) -> Timer | None:
        """Return the timer that this role waits for; None: it waits for messages only."""
        return None

    def awaited(self) -> Timer | None:
        """Return the timer that the run waits for: the role's, or at its end the last look's."""
        if self.looks is not None and self.looks.last:
            return self.looks.timer()
        return self.timer()

    def _waits_for(self, number: int) -> bool:
        timer = self.awaited()
        return timer is not None and timer.number == number

    def on_deadline(self, number: int) -> list[Outgoing]:
        """Handle the end of timer `number`."""
        return []

    def work_for(self, edge: str) -> list[Outgoing]:
        """Return what `edge` is to do now: the open look, or the task of `answer`. Pure."""
        return self._looks_first(self.answer(edge))

    def start(self) -> list[Outgoing]:
        """Return no message: the server only answers."""
        return []

    def on_message(self, message: ServerInput) -> list[Outgoing]:
        """Fold one message into the state. Messages must come in journal order."""
        outgoing = self._folded(message)
        if self.model_average is not None:
            self.model_average.add(self.version, self.params)
        return self._looks_first(outgoing)

    def _folded(self, message: ServerInput) -> list[Outgoing]:
        outgoing: list[Outgoing] = []
        match message:
            case Hello():
                return self._hello(message)
            case Halt():
                return self._halt(message.reason)
            case LiftQuarantine(edge):
                return self._release(edge)
            case Retired(edge) if edge in self.edges:
                self.edges[edge] = self.edges[edge].retire(message)
                if not self.halted:
                    outgoing = self.left(edge)
            case Update() if message.look:
                outgoing = self._look(message)
            case Update():
                outgoing = self._training(message)
            case Deadline(number) if not self.halted and self._waits_for(number):
                outgoing = self._deadline(number)
        return self._end(outgoing) if self.over() else outgoing

    def _training(self, update: Update) -> list[Outgoing]:
        if not self.halted and not self._looks_last:
            outgoing = self._update(update)
            if self.looks is not None:
                self.looks.reach(self.version, self.params)
            return outgoing
        # An update in one batch with the run's last one: too late for the model, but released.
        if update.edge in self.edges:
            self.edges[update.edge] = self.edges[update.edge].account(update)
        return [Outgoing(update.edge, self.global_model())] if self._looks_last else []

    def _deadline(self, number: int) -> list[Outgoing]:
        if self._looks_last:
            return self._halt(_ALL_APPLIED)
        outgoing = self.on_deadline(number)
        if self.looks is not None:
            self.looks.reach(self.version, self.params)
        return outgoing

    def screen(self, update: Update) -> str | None:
        """Return why `update` must not enter the journal; None: it may. Pure.

        Reasons: halted, unknown (no Hello), kind, version. A stale update enters: it was released,
        and the journal must hold its edge's newest ledger.
        """
        if self.halted:
            return "halted"
        if update.edge not in self.edges:
            return "unknown"
        if update.look:
            fits = self.looks is not None and update.vector.numel() == self.looks.width
            begun = self.looks is not None and self.looks.knows(update.look)
            return None if fits and begun else "kind"
        if (update.part is not None) != self.in_parts:
            return "kind"
        if update.base_version > self.version:
            return "version"
        return None

    def _hello(self, hello: Hello) -> list[Outgoing]:
        if why := self.refuses(hello):
            return [Outgoing(hello.edge, Halt(self.version, why))]
        record = self.edges.get(hello.edge, EdgeRecord(hello))
        self.edges[hello.edge] = replace(record, hello=hello, retired="").account(hello)
        if self.halted:
            return [Outgoing(hello.edge, Halt(self.version, self.halt_reason))]
        if hello.edge in self.accused:  # a model would cost it budget for nothing
            return []
        return self.joined(hello.edge)

    def _update(self, update: Update) -> list[Outgoing]:
        tau = max(
            0, self.version - update.base_version
        )  # t - τ: measured, never assumed; reports may be ahead of t
        self.edges[update.edge] = self.edges[update.edge].account(update)
        if update.edge in self.accused:
            self.kept_out += 1
            return []
        if not self.admits(update, tau):
            self.stale += 1
            return self.answer(update.edge)
        judged, outgoing = (update, []) if self.watch is None else self._judged(update, self.watch)
        if self.halted or judged is None:
            self.kept_out += 1
            return outgoing
        self.note_staleness(tau)
        self.edges[update.edge] = self.edges[update.edge].account(update, 1)
        return outgoing + self.apply(judged, tau)

    # -- looks at held-out rows --------------------------------------------------------------------

    @property
    def _looks_last(self) -> bool:
        """Whether all updates are applied, and the run waits for the last look."""
        return self.looks is not None and self.looks.last and not self.halted

    def _look(self, update: Update) -> list[Outgoing]:
        """Take an edge's answer to a look, which moves no model; give it the task that waited."""
        if update.edge not in self.edges:
            return []
        self.edges[update.edge] = self.edges[update.edge].account(update)
        if self.looks is None or self.halted or update.edge in self.accused:
            return []
        self.looks.take(update)
        return self.answer(update.edge)

    def _end(self, outgoing: list[Outgoing]) -> list[Outgoing]:
        """End the run, or ask all edges for the last look, and wait for them.

        outgoing: what follows from the last message, where that wait has begun before.
        """
        if self.looks is None:
            return self._halt(_ALL_APPLIED)
        if self.halted:
            return outgoing
        judges = [name for name in self.edges if self._may_look(name)]
        begins = not self.looks.last
        self.looks.last = True
        if not judges:
            return self._halt(_ALL_APPLIED)
        return [Outgoing(name, self.global_model()) for name in judges] if begins else outgoing

    def _may_look(self, edge: str) -> bool:
        """Check whether `edge` is to be given the open look."""
        record = self.edges[edge]
        able = not record.retired and edge not in self.accused
        return able and self.looks is not None and self.looks.is_for(edge, record.hello.looked)

    def _looks_first(self, outgoing: list[Outgoing]) -> list[Outgoing]:
        """Put the open look in the place of a task, where an edge has not answered it.

        At the run's end there are no more tasks.
        """
        if self.looks is None or self.halted:
            return outgoing
        replaced = []
        for out in outgoing:
            if not isinstance(out.message, GlobalModel):
                replaced.append(out)
            elif self._may_look(out.to):
                replaced.append(Outgoing(out.to, self._look_model()))
            elif not self.looks.last:
                replaced.append(out)
        return replaced

    def _look_model(self) -> GlobalModel:
        assert self.looks is not None
        model = self.looks.model
        assert model is not None
        looks = self.looks
        return GlobalModel(looks.version, model, self.clip, self.terms, looks.number)

    # -- the guard's sums --------------------------------------------------------------------------

    def _judged(self, update: Update, watch: Watch) -> tuple[Update | None, list[Outgoing]]:
        """Judge an update by the guard's sums; return it weighted, and the messages that follow.

        None in place of the update: it does not count.
        """
        base = self.base(update)
        led = update.vector - base
        verdict = watch.judge(update.edge, led, self.law(update))
        outgoing = [out for each, why in verdict.accused.items() for out in self._accuse(each, why)]
        if update.edge in self.accused:
            return None, outgoing
        if self.one_by_one and update.edge in watch.opposed:
            return None, outgoing + self.answer(update.edge)  # it would use up the others' turns
        if verdict.weight == 1.0:
            return update, outgoing
        return replace(update, vector=base + verdict.weight * led), outgoing

    def _accuse(self, edge: str, why: str) -> list[Outgoing]:
        """Ignore `edge` from now on. The run ends where no majority of edges is left."""
        self.accused = self.accused | {edge: why}  # another thread may read it
        if 2 * len(self.accused) >= len(self.edges):
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.accused.items())
            return self._halt(f"no majority of honest edges ({reasons})")
        return self.shut_out(edge)

    def shut_out(self, edge: str) -> list[Outgoing]:
        """Handle an edge that the guard has shut out, as if it had left."""
        return self.left(edge)

    def _release(self, edge: str) -> list[Outgoing]:
        """End an accusation for an operator; the edge begins anew, as if it had sent nothing."""
        if edge not in self.accused or self.watch is None or self.halted:
            return []
        self.accused = {name: why for name, why in self.accused.items() if name != edge}
        self.watch.forget(edge)
        return self.joined(edge)

    def _halt(self, reason: str) -> list[Outgoing]:
        if self.halted:
            return []
        self.halt_reason = reason or "halted"
        return [Outgoing(EVERYONE, Halt(self.version, self.halt_reason))]
