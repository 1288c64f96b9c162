"""Who has signed a bundle: its files, the host's signature, certificates, and anchors."""

from __future__ import annotations

from dataclasses import dataclass

from cryptography import x509

from tacit.errors import DataError
from tacit_services.enrollment import certificates
from tacit_services.evidence import bundle
from tacit_services.evidence.anchors import Anchors
from tacit_services.evidence.bundle import BundleFacts, SignedBundle
from tacit_services.evidence.bundle_files import BundleFiles
from tacit_services.evidence.bundle_verdict import BundleVerdict
from tacit_services.statements.statement import SignedStatement


@dataclass(frozen=True, slots=True)
class OpenedBundle:
    """A bundle whose files are those that its host has signed.

    statements: of edges, with the signatures of their certificates' keys.
    """

    files: BundleFiles
    facts: BundleFacts
    statements: dict[str, SignedStatement]


class IdentityChecks:
    """The checks of one bundle's signatures."""

    def __init__(self, files: BundleFiles, anchors: Anchors, verdict: BundleVerdict) -> None:
        self._files = files
        self._anchors = anchors
        self._verdict = verdict

    def opened(self) -> OpenedBundle | None:
        """Return the bundle; None: it is refused, and nothing in it means anything."""
        try:
            signed = SignedBundle(self._files.content(bundle.NAME))
            authority = self._certificate(bundle.AUTHORITY)
            host = self._certificate(bundle.HOST)
        except (DataError, ValueError) as error:
            self._verdict.refuse("bundle", f"{bundle.NAME}: {error}")
            return None
        facts = signed.facts
        if not self._is_hosts(signed, authority, host) or not self._files_agree(facts):
            return None
        self._say_who(facts, authority)
        statements = {
            edge: stated
            for edge in facts.edges
            if (stated := self._statement(edge, facts, authority)) is not None
        }
        self._compare_anchors(facts, statements)
        return OpenedBundle(self._files, facts, statements)

    def _certificate(self, name: str) -> x509.Certificate:
        """Raises DataError, ValueError."""
        return x509.load_pem_x509_certificate(self._files.content(name))

    def _is_hosts(
        self, signed: SignedBundle, authority: x509.Certificate, host: x509.Certificate
    ) -> bool:
        is_own = certificates.is_issued_by(authority, certificates.pem(authority))
        of_it = certificates.is_issued_by(host, certificates.pem(authority))
        if not is_own or not of_it or certificates.common_name(host) != bundle.HOST_NAME:
            self._verdict.refuse(
                "authority", f"{bundle.HOST}: is not a certificate that the authority gave the host"
            )
            return False
        fits = signed.facts.key == certificates.key_digest(host.public_key())
        if not fits or not signed.is_by(host.public_key()):
            self._verdict.refuse("signature", f"{bundle.NAME}: the host has not signed it")
            return False
        return True

    def _files_agree(self, facts: BundleFacts) -> bool:
        files = self._files
        has = {name for name in files.names if name != bundle.NAME}
        apart = sorted(has ^ facts.files.keys())
        for name in apart:
            word = "is not in the bundle" if name in facts.files else "is not the host's"
            self._verdict.refuse("files", f"{name}: {word}")
        altered = [n for n in sorted(has & facts.files.keys()) if files.digest(n) != facts.files[n]]
        for name in altered:
            self._verdict.refuse("files", f"{name}: is not the file that the host has signed")
        if not files.is_exact():
            self._verdict.refuse("zip", f"{files.root.name}: has other bytes than its files make")
            return False
        if not apart and not altered:
            self._verdict.prove("files", f"all {len(has)} files are those that the host has signed")
        return not apart and not altered

    def _say_who(self, facts: BundleFacts, authority: x509.Certificate) -> None:
        name = certificates.fingerprint(authority)
        if self._anchors.authorities:
            if name in self._anchors.authorities:
                self._verdict.prove("authority", f"the authority is the one of the anchor, {name}")
            else:
                words = f"the authority is {name}, which is not the one of the anchor"
                self._verdict.refuse("authority", words)
        elif facts.self_stated:
            self._verdict.state(
                "self-stated",
                "self-stated: one machine has made the authority, every edge's key and every "
                "statement, for this bundle alone",
                "the exporter",
            )
        else:
            words = f"the edges are who they are said to be; the authority is {name}"
            self._verdict.state("identities", words, "the host alone")

    def _statement(
        self, edge: str, facts: BundleFacts, authority: x509.Certificate
    ) -> SignedStatement | None:
        name = bundle.statement_of(edge)
        if name not in self._files.names:
            self._verdict.miss("statement", f"{edge} has stated nothing")
            return None
        try:
            stated = SignedStatement(self._files.content(name))
            certificate = self._certificate(bundle.certificate_of(edge))
        except (DataError, ValueError) as error:
            self._verdict.refuse("statement", f"{name}: {error}")
            return None
        statement = stated.statement
        key = certificate.public_key()
        if not certificates.is_issued_by(certificate, certificates.pem(authority)):
            why = "its certificate is not of the bundle's authority"
        elif certificates.common_name(certificate) != edge or statement.edge != edge:
            why = "it, or its certificate, is of another edge"
        elif stated.key != certificates.key_digest(key) or not stated.is_by(key):
            why = "the owner of the certificate has not signed it"
        elif statement.run != facts.run:
            why = "it is of another run"
        else:
            return stated
        self._verdict.refuse("statement", f"{name}: {why}")
        return None

    def _compare_anchors(self, facts: BundleFacts, stated: dict[str, SignedStatement]) -> None:
        anchors = self._anchors
        if not anchors.of_owners:
            return
        for edge in sorted(anchors.edges - set(facts.edges)):
            self._verdict.refuse("anchor", f"{edge}: its owner took part, and it is left out")
        for edge in sorted(set(facts.edges) - anchors.edges):
            self._verdict.refuse("anchor", f"{edge}: no owner has vouched for it by an anchor")
        for edge in sorted(set(facts.edges) & anchors.edges):
            self._compare(edge, stated.get(edge))

    def _compare(self, edge: str, stated: SignedStatement | None) -> None:
        anchors = self._anchors
        if stated is None:
            self._verdict.refuse("anchor", f"{edge}: its owner's statement is left out")
        elif stated.key != anchors.keys[edge]:
            self._verdict.refuse("anchor", f"{edge}: another key has signed than its owner's")
        elif edge in anchors.statements and anchors.statements[edge].content != stated.content:
            self._verdict.refuse("anchor", f"{edge}: its owner has stated something else")
        else:
            self._verdict.prove("anchor", f"{edge}: its owner's own key has signed its statement")
