"""The checks of an algorithm, each against one promise that tacit makes for every algorithm.

Idea. One `Rehearsal` gives a journal in an order that a seed draws. The checks fold it again in
other ways (from its bytes, in another process, from every snapshot, through kills), and compare
whole states bit for bit. Others look at what the edges sent, and what their ledgers paid for it.

Guarantee. A check fails on the algorithms that tests/unit/conformance breaks in its one way. A pass
says that the promise held in this rehearsal, no more.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from random import Random

import torch

from tacit.algorithms.base.edge_task import EdgeTask
from tacit.algorithms.base.local_steps import LocalStepsTask
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.base.tree_sums import TreeSumsTask
from tacit.algorithms.least_squares.moments_edge import MomentsTask
from tacit.algorithms.own.own_steps import OwnStepsTask
from tacit.audit import message_attacks, moments_attack
from tacit.audit.statistics import Finding
from tacit.audit.subject import Randomness, Subject
from tacit.privacy.accounting import epsilon_pld
from tacit.privacy.release import Mechanism, Released
from tacit.protocol.messages import Hello, Retired, Update
from tacit.simulation.client_server import received
from tacit_services.aggregator.run_journal import RunJournal
from tacit_services.aggregator.snapshots import Saving
from tacit_services.conformance import elsewhere
from tacit_services.conformance.check_result import CheckResult, NonconformanceError, require
from tacit_services.conformance.played_run import RUN, RecordedEntry, Rehearsal, digest
from tacit_services.conformance.rule import differs
from tacit_services.journal import snapshot_file
from tacit_services.journal.journal_file import Header, Writer
from tacit_services.journal.store import NewEntry, Snapshot, Verdict
from tacit_services.journal.store.append_rules import JournalLimits
from tacit_services.journal.store.memory import MemoryRun, MemoryStore

KILLS = 20  # seeds of orders of kills
_DIES, _RESENT, _SAVES = 0.2, 0.2, 0.2
_PUSHES = 2000  # of the audit, each way


def conform(rehearsal: Rehearsal, checks: Iterable[str] = ()) -> Iterator[CheckResult]:
    """Play the rehearsal and yield the result of each check.

    checks: their names, all by default. Raises ConfigError as `Rehearsal`.
    """
    rehearsal.play()
    for name in checks or CHECKS:
        try:
            CHECKS[name](rehearsal)
        except NonconformanceError as error:
            yield CheckResult(name, str(error))
        else:
            yield CheckResult(name, None)


def _equal(ours: str, theirs: str, what: str) -> None:
    require(ours == theirs, f"{what} ends in another state: SHA-256 {theirs[:12]}, not {ours[:12]}")


# -- the server ------------------------------------------------------------------------------------


def _shown(rehearsal: Rehearsal) -> None:
    """Check that the schedule has finite numbers, and that asking a role changes nothing."""
    role = rehearsal.server
    before = digest(role)
    schedule = role.schedule()
    for key in ("clip", "learning_rate"):
        require(key in schedule, f"schedule() has no {key!r}")
    bad = [key for key, value in schedule.items() if not math.isfinite(value)]
    require(not bad, f"schedule() has no finite number for {', '.join(bad)}")
    fresh = rehearsal.new_server()
    for message in rehearsal.messages():
        state = digest(fresh)
        fresh.timer()
        fresh.schedule()
        fresh.global_model()
        if isinstance(message, Update):
            fresh.screen(message)
            fresh.answer(message.edge)
        _equal(state, digest(fresh), "asking timer, schedule, screen and answer")
        fresh.on_message(message)
    _equal(before, digest(fresh), "a server that was asked at each message")


def _replays(rehearsal: Rehearsal) -> None:
    """Check that the journal folds to the same bits."""
    fresh = rehearsal.new_server()
    for message in rehearsal.messages():
        fresh.on_message(message)
    _equal(
        digest(rehearsal.server),
        digest(fresh),
        "a replay of the journal (is there a clock, a random number, or something that two servers "
        "share?)",
    )


def _replays_elsewhere(rehearsal: Rehearsal) -> None:
    """Check the same in another process, whose hashes of text, host, date and zone are others."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        writer = Writer(path)
        writer.open(Header(RUN, rehearsal.run, Snapshot(0, b"")))
        writer.append((place, entry.payload) for place, entry in enumerate(rehearsal.entries, 1))
        writer.close()
        code = str(rehearsal.definition.folder.resolve())
        child = elsewhere.ran(
            "tacit_services.cli.main", "replay", str(path), "--json", "--code", code
        )
    require(child.returncode == 0, f"tacit replay failed: {child.stderr.strip()[-300:]}")
    theirs = json.loads(child.stdout)["model_sha256"]
    _equal(
        _weights(rehearsal),
        theirs,
        "a replay in another process (are there hash(), an order of a set, the date, the time zone "
        "or the host's name?)",
    )


def _weights(rehearsal: Rehearsal) -> str:
    from tacit_services.journal.weights import Weights

    return Weights(rehearsal.model, rehearsal.server.params).sha256()


def _snapshots(rehearsal: Rehearsal) -> None:
    """Check that a server goes on from every snapshot to the same bits."""
    end = digest(rehearsal.server)
    messages = len(rehearsal.entries)
    role = rehearsal.new_server()
    for place in range(messages):
        later = rehearsal.new_server()
        later.restore(*snapshot_file.loads(snapshot_file.dumps(*role.state())))
        if unsaved := _unsaved(role, later):
            raise NonconformanceError(
                f"{', '.join(unsaved)}: not in a snapshot after {place} messages; name it in saved"
            )
        _equal(digest(role), digest(later), f"a snapshot after {place} of {messages} messages")
        for entry in rehearsal.entries[place:]:
            later.on_message(rehearsal.read(entry.payload))
        _equal(end, digest(later), f"a run that goes on from a snapshot after {place} messages")
        role.on_message(rehearsal.read(rehearsal.entries[place].payload))


def _unsaved(role: ServerRole, later: ServerRole) -> list[str]:
    """Return the attributes of a server that its continuation has otherwise."""
    names = [name for name in vars(role) if not name.startswith("_")]
    return [name for name in names if _differ(getattr(role, name), getattr(later, name, None))]


def _differ(one: object, other: object) -> bool:
    """Check whether two values differ in a bit; one nan is the other."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return not _same_bits(one, other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) != len(other) or any(map(_differ, one, other))
    plain = all(isinstance(each, int | float | str | None) for each in (one, other))
    return plain and repr(one) != repr(other)


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    ours, theirs = (each.reshape(-1).view(torch.uint8) for each in (one, other))
    return torch.equal(ours, theirs)


def _writes_nowhere(rehearsal: Rehearsal) -> None:
    """Check that nothing is written into the tensors of a state: another thread stores them."""
    role = rehearsal.new_server()
    held: list[tuple[int, str, torch.Tensor, torch.Tensor]] = []
    for place, message in enumerate(rehearsal.messages()):
        tensors, _ = role.state()
        held += [(place, name, tensor, tensor.clone()) for name, tensor in tensors.items()]
        role.on_message(message)
    for place, name, tensor, copy in held:
        require(
            _same_bits(tensor, copy),
            f"{name} of the state after {place} messages was written into; give it a new tensor",
        )


def _kills(rehearsal: Rehearsal) -> None:
    """Check that each message counts once, with kills of the aggregator and messages sent twice."""
    end = digest(rehearsal.server)
    with ThreadPoolExecutor(1) as saver:
        for seed in range(KILLS):
            role = _killed(rehearsal, Random(seed), saver)
            _equal(end, role, f"the run with kills of seed {seed}")


def _killed(rehearsal: Rehearsal, random: Random, saver: Executor) -> str:
    runs: dict[str, MemoryRun] = {}

    def started() -> RunJournal:
        role = rehearsal.new_server()
        limits = JournalLimits(1 << 20, 1 << 40)
        journal = RunJournal(
            RUN,
            role,
            rehearsal.schema,
            role.update_size,
            MemoryStore(RUN, limits, runs),
            fingerprint=rehearsal.definition.fingerprint,
            snapshot_every=1 << 20,
            saving=Saving(saver),
        )
        journal.take_over()
        return journal

    journal = started()
    sent: list[RecordedEntry] = []
    for entry in rehearsal.entries:
        if random.random() < _DIES:
            journal = started()
        if sent and random.random() < _RESENT:
            again = random.choice(sent)
            (answer,) = journal.store.append([NewEntry(again.sender, again.seq, again.payload)])
            require(answer.verdict == Verdict.DUPLICATE, "a message that was sent again counted")
        journal.store.append([NewEntry(entry.sender, entry.seq, entry.payload)])
        sent.append(entry)
        if random.random() < _DIES:
            journal = started()
        journal.take_over()
        if random.random() < _SAVES:
            journal.begin_save()
            journal.saved_more(wait=True)
    return digest(started().role)


# -- the edges -------------------------------------------------------------------------------------


def _simulated(rehearsal: Rehearsal) -> None:
    """Check that the simulator, which has no bytes, folds to the same bits order for order."""
    pushes = iter([push for _, push, _, _ in rehearsal.pushes])
    fresh = rehearsal.new_server()
    for message in rehearsal.messages():
        if not isinstance(message, Update):
            fresh.on_message(message)
            continue
        push = received(next(pushes))
        while fresh.screen(push) is not None:  # type: ignore[arg-type]
            push = received(next(pushes))
        fresh.on_message(push)
    _equal(digest(rehearsal.server), digest(fresh), "the simulator")


def _door(rehearsal: Rehearsal) -> None:
    """Check that every push was released and paid before it left."""
    task = rehearsal.definition.algorithm.task(rehearsal.definition.privacy.noise_at)
    for role, push, before, after in rehearsal.pushes:
        require(type(push.released) is Released, f"{role.edge} pushed what was not released")
        paid = after - before
        require(
            task.least_steps <= paid <= task.most_steps,
            f"{role.edge} pushed an update that paid {paid} releases, of at most {task.most_steps}",
        )
    charged = {name: role.releaser.ledger.charged() for name, role in rehearsal.edges.items()}
    newest: dict[str, object] = {}
    for message in rehearsal.messages():
        if isinstance(message, Hello | Update | Retired):
            newest[message.edge] = message.charged
    for name, counted in newest.items():
        require(
            counted == charged[name],
            f"{name}'s ledger has {charged[name]}, and the journal says {counted}",
        )


def _spent(rehearsal: Rehearsal) -> None:
    """Check that ε, from the counts of releases, is within what each edge's plan allows."""
    for name, role in rehearsal.edges.items():
        plan = role.releaser.plan
        spends = role.releaser.ledger.history()
        if not spends or not rehearsal.definition.promise.private:
            continue
        spent = epsilon_pld(spends, plan.delta)
        require(spent <= plan.epsilon, f"{name} has spent ε = {spent:g} of {plan.epsilon:g}")
        record = rehearsal.server.edges[name]
        require(
            tuple(record.spent) == tuple(spends),
            f"the server's record of {name} is not what its ledger has",
        )


def _rules(rehearsal: Rehearsal) -> None:
    """Check that a rule of local steps takes the same steps in a process that has no rows."""
    task = rehearsal.definition.algorithm.task(rehearsal.definition.privacy.noise_at)
    if not rehearsal.rules:
        return
    edges = {name: rule.steps for name, rule in rehearsal.rules.items()}
    with tempfile.TemporaryDirectory() as place:
        why = differs(task, rehearsal.definition.folder, edges, Path(place))
    require(not why, why)


def _attacked(rehearsal: Rehearsal) -> None:
    """Attack one message of the edge's task as the audit does: one row, in it or not."""
    task = rehearsal.definition.algorithm.task(rehearsal.definition.privacy.noise_at)
    mechanism = rehearsal.definition.plans.default.mechanism
    if mechanism == "none":
        return
    if isinstance(task, MomentsTask):
        findings = moments_attack.attacked(Randomness(1))
    else:
        findings = attacks(conformance_subject(task, mechanism))
    for finding in findings:
        require(
            finding.good,
            f"{finding.test}: a message shows {finding.quantity} {finding.measured:.3g} of a row, "
            f"above {finding.claim:.3g}",
        )


def conformance_subject(task: EdgeTask, mechanism: Mechanism) -> Subject:
    """Return the audit's subject whose edge does `task`.

    A rule of the user's own sees what the door has let out, so its edge is attacked as one that
    takes as many plain steps.
    """
    if isinstance(task, OwnStepsTask):
        task = LocalStepsTask(steps_min=task.steps)
    if isinstance(task, TreeSumsTask):  # the nodes of a larger tree: tests/unit/privacy/test_tree
        task = TreeSumsTask(batches=1)
    return Subject("conformance", mechanism=mechanism, task=task, steps=task.most_steps)


def attacks(subject: Subject) -> list[Finding]:
    """Return what the audit finds of a subject's messages."""
    return message_attacks.canary(subject, Randomness(1), _PUSHES)


CHECKS: dict[str, Callable[[Rehearsal], None]] = {
    "schedule": _shown,
    "replay": _replays,
    "replay in another process": _replays_elsewhere,
    "snapshots": _snapshots,
    "tensors": _writes_nowhere,
    "kills": _kills,
    "simulator": _simulated,
    "door": _door,
    "epsilon": _spent,
    "rule": _rules,
    "attack": _attacked,
}
