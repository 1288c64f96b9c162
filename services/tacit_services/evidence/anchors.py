"""Anchors: what owners, or a federation, have given outside of a bundle.

A file of anchors is one of

- certificates (PEM), of the authority or of edges
- a statement, as an edge has made it
- a text whose lines are `authority sha256:…` (of its certificate) or `edge-N sha256:…` (of the
  edge's public key, as DER).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509

from tacit import regular_file
from tacit.errors import DataError
from tacit.shown import printable
from tacit_services.enrollment import certificates
from tacit_services.statements.statement import MOST, SignedStatement

_AUTHORITY = "authority"
_LINE = re.compile(r"(authority|edge-\d{1,9})[ \t]+sha256:([0-9a-f]{64})")


@dataclass(slots=True)
class Anchors:
    """What is known beforehand. authorities: `sha256:…` of certificates; keys: of edges, by name.

    statements: those that owners gave, by edge.
    """

    authorities: set[str] = field(default_factory=set)
    keys: dict[str, str] = field(default_factory=dict)
    statements: dict[str, SignedStatement] = field(default_factory=dict)

    @property
    def of_owners(self) -> bool:
        """Whether any owner has given one, so that every edge needs one."""
        return bool(self.keys or self.statements)

    @property
    def edges(self) -> set[str]:
        """The edges whose owners have given one."""
        return {*self.keys, *self.statements}


def read(paths: Iterable[Path]) -> Anchors:
    """Return the anchors of all files together. Raises DataError for what is none."""
    anchors = Anchors()
    for path in paths:
        try:
            content = regular_file.content(path, MOST)
        except OSError as error:
            raise DataError(f"--anchor {path}: {error.strerror or error}") from error
        try:
            _take(anchors, content)
        except ValueError as error:
            raise DataError(f"--anchor {path}: {error}") from error
    return anchors


def _take(anchors: Anchors, content: bytes) -> None:
    if b"-----BEGIN CERTIFICATE-----" in content:
        for certificate in x509.load_pem_x509_certificates(content):
            _take_certificate(anchors, certificate)
    elif content.lstrip().startswith(b"{"):
        statement = SignedStatement(content)
        _enter(anchors.keys, statement.statement.edge, statement.key)
        anchors.statements[statement.statement.edge] = statement
    else:
        _take_lines(anchors, content.decode("utf-8"))


def _take_certificate(anchors: Anchors, certificate: x509.Certificate) -> None:
    if certificate.issuer == certificate.subject:
        anchors.authorities.add(certificates.fingerprint(certificate))
        return
    name = certificates.common_name(certificate)
    _enter(anchors.keys, name, certificates.key_digest(certificate.public_key()))


def _take_lines(anchors: Anchors, text: str) -> None:
    lines = [line.strip() for line in text.splitlines() if line.strip() and line[0] != "#"]
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"is no anchor: {printable(line, 80)}")
        if match[1] == _AUTHORITY:
            anchors.authorities.add(f"sha256:{match[2]}")
        else:
            _enter(anchors.keys, match[1], match[2])
    if not lines:
        raise ValueError("has no anchor in it")


def _enter(keys: dict[str, str], edge: str, key: str) -> None:
    if keys.setdefault(edge, key) != key:
        raise ValueError(f"has another key for {edge} than an anchor before")
