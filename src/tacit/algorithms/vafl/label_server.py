"""VAFL, the server's side: vertical federated learning, asynchronous, t-synchronous, synchronous.

Paper: "VAFL: a Method of Vertical Asynchronous Federated Learning" (arXiv:2007.06081),
Algorithms 1 and 2. The clients' side is party.py.

| here      | paper     | meaning |
| --------- | --------- | --- |
| params    | θ_0       | the server's model, float32 (d_0,) |
| theta     | θ_m       | a party's model, float32 (d_m,); it never leaves the party |
| table     | h_{n,m}   | latest embedding of every record from every party, (n, M, width) |
| version   | k         | iterations: updates of θ_0 |
| delays    | τ_{n,m}^k | iterations since table[n, m] was uploaded (3) |
| max_delay | D         | older entries are asked for anew before they are used (§2.3, 1.) |
| t         | t         | parties waited for: 1 is Algorithm 1, M with common batches SGD |
| batch     | N_m       | records of one activation |

Differs from the paper (why: docs/algorithms.md): both gradients of an iteration are taken at θ_0^k,
as in (2a) and (2b) and not as in the listing. A party's epochs are in a fresh random order.
Embeddings are clipped before the noise, and privacy is counted per release, without amplification.
θ_0's model sees noisy embeddings divided by their noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms.base.labelled_records import LabelledRecords
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.vafl import state as vafl_state
from tacit.algorithms.vafl.evaluation_rounds import EvaluationRounds
from tacit.algorithms.vafl.requests import Requests
from tacit.algorithms.vafl.step_rules import Protocol
from tacit.algorithms.vafl.vafl_settings import Vafl
from tacit.config.definition import Definition
from tacit.datasets import Dataset
from tacit.models import Model
from tacit.models.vectors import learnable
from tacit.privacy.noise.labels import corrected_loss
from tacit.privacy.release.embeddings import FROZEN, EmbeddingPlan
from tacit.protocol.messages import Hello, Outgoing, ServerInput, Timer, Update
from tacit.protocol.vertical import Feedback, Request, Roster

LAST_SECONDS = 60.0  # the longest wait for the last evaluation after training
PlanOfParty = Callable[[str], EmbeddingPlan]
PlacesOfParty = Callable[[str], int | None]
_Group = list[tuple[str, int, Tensor]]  # (party, step, rows)


class LabelServer(ServerRole):
    """The server of Algorithms 1 and 2: labels, θ_0 and the table.

    Its parties are the fold's edges.
    """

    in_parts = True

    def __init__(
        self,
        definition: Definition[Vafl],
        head: Model,
        protocol: Protocol,
        labelled: LabelledRecords,
        plan: PlanOfParty,
        places: PlacesOfParty = lambda party: None,
    ) -> None:
        """head: θ_0's model of (M, width) embeddings. plan: a party's plan, by its name.

        It comes from the run definition, and no party is asked for it. places: how many numbers of
        a party's embedding say something, the first ones. None: all do.
        """
        super().__init__(definition, head)  # line 1
        self.names = definition.worker_names
        self.head = head
        self.protocol = protocol
        self.labelled = labelled
        self.plan = plan
        self._places = places
        self.table = torch.zeros(len(labelled.names), *head.shape)
        # k of each entry's upload
        self.uploaded = torch.zeros(self.table.shape[:2], dtype=torch.int64)
        self.complete: set[str] = set()  # parties whose step 0 is in the table
        self.gathered: _Group = []  # uploads that wait for their iteration
        self.answers: dict[str, Feedback] = {}  # the latest to each party
        self.requests = Requests()
        public = torch.arange(labelled.records, len(labelled.names))
        section = definition.evaluation
        self.evaluation = EvaluationRounds(public, section.every, section.samples, protocol.seed)

    # -- the role interface ------------------------------------------------------------------------

    @property
    def largest(self) -> int:
        """The length of one party's table."""
        return self.table[:, 0].numel()

    def schedule(self) -> dict[str, float]:
        """Return B, η_m^k, and how many parties' tables are complete."""
        rate = self.protocol.steps.party(self.version)
        return {"clip": self.clip, "learning_rate": rate, "tables": len(self.complete)}

    def place(self, edge: str) -> int:
        """Return the party's place in the table, where parties are in the order of arrival."""
        return list(self.edges).index(edge)

    def refuses(self, hello: Hello) -> str:
        """Refuse who is none of the run's M parties."""
        is_party = hello.edge in self.names
        if is_party:
            return ""
        return f"this run has its {self.protocol.parties} parties"

    def on_message(self, message: ServerInput) -> list[Outgoing]:
        """Fold a message as every server; after the end, serve an operator's Request."""
        if self.halted and isinstance(message, Request):
            return self._infer(message.rows)
        if self.halted and isinstance(message, Update):
            self._inferred(message)
            return []
        return super().on_message(message)

    def screen(self, update: Update) -> str | None:
        """Screen as every server, with three more reasons: rows, norm and shape. Pure."""
        reason = super().screen(update)
        if reason is not None and not (self.halted and self.requests.awaits(update)):
            return reason
        assert update.part is not None  # in_parts
        rows = update.part.rows
        size = update.vector.numel()
        # Gradients, which answer a step, show labels: only of rows whose labels are protected.
        stepped = update.part.step and not update.part.request
        if stepped:
            most = self.labelled.records
        else:
            most = len(self.table)
        if len(rows) == 0 or int(rows.max()) >= most or len(torch.unique(rows)) < len(rows):
            return "rows"
        if not learnable(update.vector):  # one step on it would end θ_0
            return "norm"
        repeated = size == 0 and update.edge in self.complete  # frozen, and released before
        if repeated or size == self.table.shape[2] * len(rows):
            return None
        return "shape"

    def admits(self, update: Update, tau: int) -> bool:
        """Return True: no upload is stale, as an entry that is too old is asked for anew."""
        return True

    def answer(self, edge: str) -> list[Outgoing]:
        """Return the task of `edge`, if any; it has none while its upload waits for others."""
        if (request := self.requests.next(edge)) is not None:
            return [Outgoing(edge, request)]
        if edge not in self.complete:
            return [Outgoing(edge, Roster(self.labelled.names, self.labelled.records))]
        if self._trained or edge not in self.answers or self._waits(edge):
            return []
        return [Outgoing(edge, self.answers[edge])]

    def left(self, edge: str) -> list[Outgoing]:
        """Go on without a party that has retired; when all have, end the run."""
        self._forget(edge)
        if not self._active():
            return self._halt("every party has retired")
        return self._evaluate(self._advance())

    def over(self) -> bool:
        """Check whether training has ended and its result is evaluated."""
        return self._trained and self.evaluation.over

    def timer(self) -> Timer | None:
        """Return the timer of the last evaluation, while that is under way."""
        last = self._trained and self.evaluation.waiting
        if last:
            return Timer(self.requests.issued, LAST_SECONDS)
        return None

    def on_deadline(self, number: int) -> list[Outgoing]:
        """Finish the last evaluation without the parties that have not answered."""
        for edge in self.requests.open:
            self._forget(edge)
        return self._evaluate([])

    def delays(self, rows: Tensor) -> Tensor:
        """Return τ_{n,m}^k (b, M) by (3): 1 after an upload, one more in each iteration."""
        return self.version - self.uploaded[rows]

    def scores(self, rows: Tensor) -> Tensor:
        """Return the model's scores (b, classes) of `rows`, from the embeddings in the table."""
        return self.head.logits(self.params, self.table[rows] * self.scales())

    def scales(self) -> Tensor:
        """Return (M, 1): what θ_0's model multiplies each party's embeddings with, min(1, 1/c_m).

        So a step is as long for every noise, whose standard deviation c_m is public. Where a
        party's embedding is narrower than the table it is (M, width), with 0 for noise alone.
        """
        parties, width = self.table.shape[1:]
        declared = [self.plan(edge).noise_variance(width) / width for edge in self.edges]
        variances = [*declared, *parties * [0.0]][:parties]
        scales = torch.tensor(variances).clamp_min(1.0).rsqrt()[:, None]
        widths = [self._places(edge) for edge in self.edges]
        if all(places is None for places in widths):
            return scales
        said = [width if places is None else places for places in widths]
        said += [width] * (parties - len(said))
        return scales * (torch.arange(width) < torch.tensor(said)[:, None])

    # -- Algorithms 1 and 2, server side -----------------------------------------------------------

    def apply(self, update: Update, tau: int) -> list[Outgoing]:
        """Put an upload into the table, then do all that it makes possible (line 8)."""
        edge = update.edge
        part = update.part
        assert part is not None  # screen()
        if part.step and not part.request and not self._turn(edge):
            return self.answer(edge)
        self._enter(update)
        if part.request:
            self._forget(edge, part.request)
        elif part.step:
            self.gathered.append((edge, part.step, part.rows))
        elif edge not in self.complete:
            self.complete.add(edge)
            if len(self.complete) == self.protocol.parties:
                self.answers = {party: Feedback(self.version, 0, None) for party in self.edges}
                return [Outgoing(party, answer) for party, answer in self.answers.items()]
        outgoing = self._evaluate(self._advance())
        # First what it was asked for: a busy party wants its newest answer only, and would not see
        # it else.
        if self.requests.next(edge) is not None:
            outgoing = [out for out in outgoing if out.to != edge]
        has_task = any(out.to == edge for out in outgoing)
        if has_task or edge not in self.answers:
            return outgoing
        return [*outgoing, *self.answer(edge)]

    def _turn(self, edge: str) -> bool:
        """Check whether a step of `edge` is due: no party may fill an iteration of t alone."""
        return len(self.complete) == self.protocol.parties and not self._waits(edge)

    def _waits(self, edge: str) -> bool:
        """Check whether an upload of `edge` waits for others."""
        return any(edge == party for party, _, _ in self.gathered)

    def _enter(self, update: Update) -> None:
        part = update.part
        place = self.place(update.edge)
        assert part is not None
        if len(update.vector):
            self.table[part.rows, place] = update.vector.view(len(part.rows), -1)
        self.uploaded[part.rows, place] = self.version  # frozen ones are as good as new

    @property
    def _trained(self) -> bool:
        return self.version >= self.horizon

    def _active(self) -> list[str]:
        return [edge for edge, record in self.edges.items() if not record.retired]

    def _advance(self) -> list[Outgoing]:
        """Do as many iterations as there are uploads of t parties (or of all that are left)."""
        outgoing: list[Outgoing] = []
        while self.gathered and not self._trained:
            t = min(self.protocol.t, len(self._active())) or 1
            if len(self.gathered) < t:
                break
            group = self.gathered[:t]
            if stale := self._stale(group):
                asking = {
                    edge: rows for edge, rows in stale.items() if not self.requests.next(edge)
                }
                outgoing += [self.requests.ask(edge, rows) for edge, rows in asking.items()]
                break
            self.gathered = self.gathered[t:]
            outgoing += self._iterate(group)
        return outgoing

    def _stale(self, group: _Group) -> dict[str, Tensor]:
        """Return the entries that are too old for `group` to be used, by party (§2.3, 1.)."""
        if self.protocol.max_delay is None:
            return {}
        rows = torch.unique(torch.cat([rows for _, _, rows in group]))
        late = self.delays(rows) > self.protocol.max_delay
        stale = {edge: rows[late[:, self.place(edge)]] for edge in self._active()}
        return {edge: rows for edge, rows in stale.items() if len(rows)}

    def _forget(self, edge: str, number: int | None = None) -> None:
        """Stop waiting for what `edge` was asked for (only request `number`, if given)."""
        self.evaluation.waiting -= self.requests.close(edge, number)

    def _iterate(self, group: _Group) -> list[Outgoing]:
        """Do one iteration k on the batches of t parties (lines 9, 10, 12 and 13)."""
        total = torch.zeros_like(self.params)
        if self._common(group):
            common = self.gradients(group[0][2])
        else:
            common = None
        for edge, step, rows in group:
            g_0, g_h = common or self.gradients(rows)
            total += g_0 / len(group)  # (2a); t > 1: appendix D, 1/t of the sum
            # A frozen θ_m learns nothing.
            if self.plan(edge).mode in FROZEN:
                its = None
            else:
                its = g_h[:, self.place(edge)]
            self.answers[edge] = Feedback(self.version, step, its)
        self.params = self.params - self.protocol.steps.server(self.version) * total
        self.version += 1
        if self._trained:
            return []
        return [Outgoing(edge, self.answers[edge]) for edge, _, _ in group]

    def _common(self, group: _Group) -> bool:
        """Check whether all of `group` have the same records: one gradient then serves them all."""
        return self.protocol.coordinated and len({step for _, step, _ in group}) == 1

    def gradients(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return (∇_{θ_0} (d_0,), ∇_h (b, M, width)) of the mean loss of `rows` at θ_0^k."""
        with torch.enable_grad():
            params = self.params.clone().requires_grad_()
            h = self.table[rows].requires_grad_()
            scores = self.head.logits(params, h * self.scales())
            labels = self.labelled.labels[rows]
            epsilon = self.labelled.label_epsilon
            loss = corrected_loss(scores, labels, epsilon).mean()
            g_0, g_h = torch.autograd.grad(loss, [params, h])
        return g_0, g_h

    # -- evaluation, on the rows that are not trained on -------------------------------------------

    def evaluation_input(self, test: Dataset) -> tuple[int, Tensor, Dataset] | None:
        """Return the latest evaluation that is ready: k, θ_0, and the embeddings with labels."""
        return self.evaluation.latest

    def _evaluate(self, outgoing: list[Outgoing]) -> list[Outgoing]:
        """Take the evaluation that has been answered, and begin the one that is due.

        Returns `outgoing`, and what parties must be asked for it.
        """
        evaluation = self.evaluation
        requests = self.requests
        if (rows := evaluation.answered()) is not None:
            h = self.table[rows] * self.scales()
            y = self.labelled.labels[rows]
            test_set = Dataset(h, y, self.head.classes, f"{self.dataset}/test")
            evaluation.take(self.version, self.params, test_set)
        if not evaluation.due(self.version, trained=self._trained):
            return outgoing
        rows = evaluation.begin(self.version, trained=self._trained)
        asking = [requests.ask(edge, rows) for edge in self._learning(self._active())]
        evaluation.waiting = {requests.open[out.to][-1].number for out in asking}
        if asking:
            return [*outgoing, *asking]
        return self._evaluate(outgoing)

    def _learning(self, parties: list[str]) -> list[str]:
        """Return the parties whose table may still change: all but those that released it once."""
        return [edge for edge in parties if self.plan(edge).mode != "cached"]

    # -- inference, after the end ------------------------------------------------------------------

    def pending(self) -> set[str]:
        """Return parties that have not answered what they were asked for."""
        return self.requests.waiting()

    def _infer(self, rows: Tensor) -> list[Outgoing]:
        """Ask for embeddings of `rows` made with the final θ_m, and for nothing else any more."""
        self.requests.open, self.evaluation.waiting = {}, set()
        return [self.requests.ask(edge, rows) for edge in self._learning(list(self.edges))]

    def _inferred(self, update: Update) -> None:
        if not self.requests.awaits(update):
            return
        self.edges[update.edge] = self.edges[update.edge].account(update)
        self._enter(update)
        assert update.part is not None  # awaits()
        self._forget(update.edge, update.part.request)

    # -- persistence -------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return Fold.state with the table, its ages, and what is under way."""
        return vafl_state.dump(self, *super().state())

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        super().restore(tensors, values)
        vafl_state.read(self, tensors, values)
