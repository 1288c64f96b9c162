"""The whole audit: what every honest mechanism must pass, and what every mutant must be caught by.

Its attacker sees nothing but bytes on the wire, and when they come; docs/privacy.md, "The audit",
says what each test is for. One run raises a false alarm with probability below ALPHA
(audit/statistics.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, get_args

from tacit.audit import histogram_edges, message_attacks, own_modules, population, rows_in_messages
from tacit.audit.columns_attacks import columns_tests
from tacit.audit.label_inference import label_tests
from tacit.audit.moments_mutants import moments_tests
from tacit.audit.mutants import LOCAL, OTHERS, SAMPLED
from tacit.audit.party_mutants import party_tests
from tacit.audit.row_times import row_times
from tacit.audit.statistics import Finding
from tacit.audit.subject import Randomness, Resend, Subject
from tacit.audit.times import Seconds, SecondsAndRows, counted, times
from tacit.audit.training import Epsilon, accountants, training
from tacit.kernels.loading import library
from tacit.privacy.release import PRIVATE, Paper

AUDITED: Final = (*PRIVATE, *get_args(Paper))
HONEST: Final = tuple(
    Subject(name, mechanism=name, z=0.5 if name == "knorm" else 1.0) for name in PRIVATE
)
# Slots are what is deployed without kernels, or where an owner asks for them.
SLOTS: Final = tuple(
    Subject(f"{name} in slots", mechanism=name, rows_alone=False)
    for name in ("gaussian", "discrete_gaussian")
)
ALGORITHMS: Final = (
    Subject("fedasync, gaussian").but(**LOCAL),
    Subject("fedbuff, discrete_gaussian", mechanism="discrete_gaussian").but(
        **LOCAL | {"algorithm": "fedbuff"}
    ),
    Subject("dp-pasgd, gaussian").but(**LOCAL | {"algorithm": "dp-pasgd"}),
    Subject("adp2sgd, gaussian", algorithm="adp2sgd"),
)
# Messages each way.
PUSHES: Final = {
    "canary": 2000,
    "against": 1200,
    "places": 600,
    "places in parts": 300,
    "places in a graph": 300,
    "crowd": 60,
    "own": 400,
    "raising": 200,
    "person": 1200,
    "dealt": 1200,
    "times": 240,
    "counted": 250,
}
Test = Callable[[Subject, Randomness], list[Finding]]
Sampled = Callable[[Subject, Randomness, int], list[Finding]]
SAMPLED_TESTS: Final[dict[str, Sampled]] = {
    "canary": message_attacks.canary,
    "against": message_attacks.against,
    "places": rows_in_messages.places,
    "places in parts": rows_in_messages.places_in_parts,
    "places in a graph": rows_in_messages.places_in_a_graph,
    "crowd": rows_in_messages.crowd,
    "own": own_modules.own_module,
    "raising": own_modules.raising,
    "person": population.person,
    "dealt": population.dealt,
    "times": times,
}


@dataclass(frozen=True, slots=True)
class Host:
    """What the audit needs of a process or a disk.

    The caller gives it, so that this library needs neither. resend: keeps a message where the edge
    keeps it, and returns it as sent and as found after a restart. fork: what a forked child sends,
    or None where no process forks. prv: a second accountant, if installed. scratch: a folder
    for as long as it is open. seconds: how pushes are timed, or None for the processor time of
    each. drawn: how pushes of drawn rows alone are timed, or None where they are not.
    """

    resend: Resend
    fork: message_attacks.Fork | None
    prv: Epsilon | None
    scratch: Callable[[], AbstractContextManager[str]]
    seconds: Seconds | None = None
    drawn: SecondsAndRows | None = None


def audit(
    host: Host,
    mechanisms: Iterable[str] = AUDITED,
    *,
    seed: int | None = None,
    mutants: bool = True,
) -> Iterator[Finding]:
    """Yield every finding about `mechanisms`, as it is made.

    A subject's mechanism decides whether it is in; most mutants, and parties, are Gaussian. The
    accountants are always in. seed: makes the edges' noise predictable, for tests only.
    """
    chosen = set(mechanisms)
    source = Randomness(seed)
    honest, algorithms, slots = (
        [s for s in subjects if s.mechanism in chosen] for subjects in (HONEST, ALGORITHMS, SLOTS)
    )
    copied = [subject for test, subject in OTHERS if test == "forks" and mutants]
    forked = [*honest, *(subject for subject in copied if subject.mechanism in chosen)]
    # First of all. Never with `source`: a fork copies a seeded stream, so its noise is the
    # parent's.
    yield from message_attacks.forks(forked, Randomness(), host.fork)
    tests = _tests(host)
    for subject in honest:
        for name, sampled in _sampled(subject).items():
            yield from sampled(subject, source, PUSHES[name])
        for test in tests.values():
            yield from test(subject, source)
    for subject in algorithms:
        yield from _algorithm(subject, source, tests)
    for subject in slots:
        yield from _in_slots(subject, source, tests)
    if "gaussian" in chosen:
        for name in ("places in a graph", "own", "raising", "dealt"):
            yield from SAMPLED_TESTS[name](HONEST[0], source, PUSHES[name])
        yield from party_tests(source, mutants=mutants)
        yield from columns_tests(source, mutants=mutants)
        yield from label_tests(source, mutants=mutants)
        # a network adds noise to times, too
        if host.seconds:
            more = 4
        else:
            more = 1
        yield from row_times()
        yield from times(HONEST[0], source, more * PUSHES["times"], host.seconds)
        yield from _counted(host, mutants=mutants)
    yield from _of_every_row(host, chosen, source, mutants=mutants)
    yield from accountants(host.prv)
    if mutants:
        yield from _caught(chosen, source, tests)


def _tests(host: Host) -> dict[str, Test]:
    def charges(subject: Subject, source: Randomness) -> list[Finding]:
        with host.scratch() as folder:
            return message_attacks.charges(subject, source, Path(folder) / "ledger.db")

    return {
        "noise": message_attacks.noise,
        "anew": message_attacks.anew,
        "empty": message_attacks.empty_batch,
        "starts": message_attacks.starts,
        "fields": message_attacks.fields,
        "strange": message_attacks.strange,
        "charges": charges,
        "retry": lambda subject, source: message_attacks.retry(subject, source, host.resend),
        "orders": message_attacks.orders,
        "sampler": rows_in_messages.sampler,
        "in parts": rows_in_messages.sampler_in_parts,
        "people": population.drawn,
        "training": training,
    }


def _sampled(subject: Subject) -> dict[str, Sampled]:
    """Return the tests with many messages that suit a mechanism.

    `knorm` has no grid, and no claim in μ.
    """
    names = (
        ("canary", "against", "person")
        if subject.mechanism == "knorm"
        else ("canary", "against", "places", "places in parts", "crowd", "person")
    )
    return {name: SAMPLED_TESTS[name] for name in names}


def _algorithm(subject: Subject, source: Randomness, tests: dict[str, Test]) -> Iterator[Finding]:
    """Yield the findings about an algorithm whose messages are not pushes.

    Its edge shares the rest with MAPA's.
    """
    yield from message_attacks.canary(subject, source, PUSHES["canary"] // 3)
    yield from rows_in_messages.places_in_parts(subject, source, PUSHES["places in parts"])
    for name in ("noise", "fields", "strange", "charges", "sampler"):
        yield from tests[name](subject, source)


def _in_slots(subject: Subject, source: Randomness, tests: dict[str, Test]) -> Iterator[Finding]:
    """Yield the findings about slots.

    `places`, and those of people, use slots for every mechanism.
    """
    yield from message_attacks.canary(subject, source, PUSHES["canary"] // 3)
    yield from rows_in_messages.crowd(subject, source, PUSHES["crowd"] // 2)
    for name in ("strange", "sampler"):
        yield from tests[name](subject, source)


def _counted(host: Host, *, mutants: bool) -> Iterator[Finding]:
    """Yield what times tell of the number of rows drawn: an edge's, with and without its delay."""
    if host.drawn is not None:
        for delayed in (True, False) if mutants else (True,):
            yield counted(host.drawn, PUSHES["counted"], delayed=delayed)


def _of_every_row(
    host: Host, chosen: set[str], source: Randomness, *, mutants: bool
) -> Iterator[Finding]:
    """Yield the findings about edges that add up all of their rows exactly."""
    if "discrete_gaussian" not in chosen:
        return
    yield from _asked(host, source, mutants=mutants)
    yield from moments_tests(source, host.scratch, mutants=mutants)
    yield from histogram_edges.histogram_tests(source, mutants=mutants)


def _asked(host: Host, source: Randomness, *, mutants: bool) -> Iterator[Finding]:
    """Yield the findings about edges that answer questions, and that judge, of pyarrow's tables."""
    if find_spec("pyarrow") is None:
        why = "pyarrow is not installed"
        yield Finding("asked", "ask", "-", 0.0, math.nan, False, skipped=why)
        yield Finding("judged", "looks", "-", 0.0, math.nan, False, skipped=why)
        return
    from tacit.audit.asked_mutants import asked_tests
    from tacit.audit.judged_mutants import judged_tests

    yield from asked_tests(source, host.scratch, mutants=mutants)
    yield from judged_tests(source, host.scratch, mutants=mutants)


def _caught(chosen: set[str], source: Randomness, tests: dict[str, Test]) -> Iterator[Finding]:
    """Yield one finding for each mutant, but for those of forks."""
    for name, subject, pushes in SAMPLED:
        if subject.mechanism in chosen:
            yield _worst(name, _of(SAMPLED_TESTS[name], pushes), subject, source)
    for name, subject in OTHERS:
        if subject.mechanism in chosen and name in tests:
            yield _worst(name, tests[name], subject, source)


def _of(test: Sampled, pushes: int) -> Test:
    return lambda subject, source: test(subject, source, pushes)


def _worst(name: str, attack: Test, subject: Subject, source: Randomness) -> Finding:
    """Return the clearest alarm of one test about a mutant."""
    if subject.compiled and library() is None:
        why = "numba is not installed"
        return Finding(name, subject.name, "-", 0.0, math.nan, False, honest=False, skipped=why)
    return max(
        attack(subject, source),
        key=lambda finding: (finding.alarm, finding.measured / (finding.claim or 1.0)),
    )
