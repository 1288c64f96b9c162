"""The whole audit: what every honest mechanism must pass, and what every mutant must be caught by.

An attacker who sees nothing but bytes on the wire; privacy.md ("The audit") says what each test is for. One run
raises a false alarm with probability below ALPHA (audit_statistics.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, get_args

from tacit.audit import checks as checks
from tacit.audit.mutants import CANARY, OTHERS
from tacit.audit.statistics import Finding
from tacit.audit.subject import Resend, Source, Subject
from tacit.audit.training import Epsilon, accountants, training
from tacit.privacy.plan import PRIVATE, Paper

AUDITED: Final = (*PRIVATE, *get_args(Paper))
PUSHES = 2000  # of the canary, each way
HONEST: Final = tuple(Subject(name, mechanism=name, z=0.5 if name == "knorm" else 1.0) for name in PRIVATE)


@dataclass(frozen=True, slots=True)
class Host:
    """What takes a process, so that this library does not do it.

    resend: keeps a message where the edge keeps it, and returns it as sent and as found after a restart. fork: what a
    forked child sends. prv: a second accountant, if installed.
    """

    resend: Resend
    fork: checks.Fork
    prv: Epsilon | None


def audit(
    host: Host, mechanisms: Iterable[str] = AUDITED, *, seed: int | None = None, mutants: bool = True
) -> Iterator[Finding]:
    """Every finding about `mechanisms`, as it is made. `seed` makes the edges' noise predictable: for tests only.

    A subject's mechanism decides whether it is in; most mutants are Gaussian. The accountants are always in.
    """
    wanted, source = set(mechanisms), Source(seed)
    honest = [subject for subject in HONEST if subject.mechanism in wanted]
    others = [(test, subject) for test, subject in OTHERS if mutants and subject.mechanism in wanted]
    forked = [*honest, *(subject for test, subject in others if test == "forks")]
    yield from checks.forks(forked, Source(), host.fork)  # first; a seeded stream is copied, so never from `source`
    tests = _tests(host)
    for subject in honest:
        yield from checks.canary(subject, source, PUSHES)
        for test in tests.values():
            yield from test(subject, source)
    yield from accountants(host.prv)
    for subject, pushes in CANARY:
        if mutants and subject.mechanism in wanted:
            yield _worst(checks.canary(subject, source, pushes))
    for name, subject in others:
        if name in tests:
            yield _worst(tests[name](subject, source))


def _tests(host: Host) -> dict[str, Callable[[Subject, Source], list[Finding]]]:
    return {
        "noise": checks.noise, "anew": checks.anew, "empty": checks.empty_batch, "starts": checks.starts,
        "fields": checks.fields, "retry": lambda subject, source: checks.retry(subject, source, host.resend),
        "orders": checks.orders, "sampler": checks.sampler, "training": training,
    }  # fmt: skip


def _worst(findings: list[Finding]) -> Finding:
    """Of what one test says of a mutant, the clearest alarm."""
    return max(findings, key=lambda finding: (finding.alarm, finding.measured / (finding.claim or 1.0)))
