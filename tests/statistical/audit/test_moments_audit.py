"""The audit of second moments: an honest edge passes, and each broken one is caught."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from tacit.audit.moments_mutants import LATE, MUTANTS, moments_tests
from tacit.audit.subject import Randomness


def test_the_honest_edge_passes_and_every_mutant_is_caught() -> None:
    findings = list(moments_tests(Randomness(1), TemporaryDirectory, mutants=True))
    assert [finding for finding in findings if not finding.good] == []
    caught = {finding.target for finding in findings if finding.verdict == "caught"}
    assert caught == {LATE.name, *(subject.name for _, subject in MUTANTS)}
