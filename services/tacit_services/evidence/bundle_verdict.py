"""What a bundle proves: findings in words, each proven, stated by somebody, missing or refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

FindingKind = Literal["proven", "stated", "missing", "refused"]
FORMAT = 1
_HEADINGS: dict[FindingKind, str] = {
    "proven": "proven",
    "stated": "only stated",
    "missing": "missing",
    "refused": "refused",
}


@dataclass(frozen=True, slots=True)
class BundleFinding:
    """One thing that was found. code: a short name, for programs; by: who states it, if anybody."""

    kind: FindingKind
    code: str
    words: str
    by: str = ""


@dataclass(slots=True)
class BundleVerdict:
    """All that was found of one bundle, in the order in which it was looked at."""

    findings: list[BundleFinding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing was refused."""
        return not self.refused

    @property
    def refused(self) -> list[BundleFinding]:
        """The reasons why the bundle is refused."""
        return [finding for finding in self.findings if finding.kind == "refused"]

    def prove(self, code: str, words: str) -> None:
        """Note what was checked and holds."""
        self.findings.append(BundleFinding("proven", code, words))

    def state(self, code: str, words: str, by: str) -> None:
        """Note what rests on the word of `by`."""
        self.findings.append(BundleFinding("stated", code, words, by))

    def miss(self, code: str, words: str) -> None:
        """Note what the bundle does not have."""
        self.findings.append(BundleFinding("missing", code, words))

    def refuse(self, code: str, words: str) -> None:
        """Note what is wrong."""
        self.findings.append(BundleFinding("refused", code, words))

    def document(self) -> dict[str, Any]:
        """Return it as for JSON."""
        findings = [
            {"kind": each.kind, "code": each.code, "words": each.words}
            | ({"by": each.by} if each.by else {})
            for each in self.findings
        ]
        return {"format": FORMAT, "ok": self.ok, "findings": findings}

    def text(self) -> str:
        """Return it for people, a paragraph for each kind."""
        lines = []
        for kind, heading in _HEADINGS.items():
            of_kind = [finding for finding in self.findings if finding.kind == kind]
            if of_kind:
                lines += [f"{heading}:", *(f"  - {_line(finding)}" for finding in of_kind)]
        return "\n".join(lines)


def _line(finding: BundleFinding) -> str:
    return f"{finding.words} (by {finding.by})" if finding.by else finding.words
