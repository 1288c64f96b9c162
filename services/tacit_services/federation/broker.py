"""The broker of a federation: one mosquitto behind the host's port, and rules that change in it.

The broker asks for client certificates of the federation's authority, and takes the common name
for the user. What a user may write, read and subscribe to is in mosquitto's plugin for dynamic
security.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tacit_services.children.processes import Child, StartedServer
from tacit_services.enrollment.authority import CertificateAuthority


def aggregator_name(run: str) -> str:
    """Return the common name of the certificate of this run's aggregator: it may only this run."""
    return f"aggregator-{run}"


class FederationBroker:
    """The mosquitto of the federation whose FOLDER/broker is `folder`, at a loopback port."""

    def __init__(self, folder: Path, authority: CertificateAuthority) -> None:
        """Prepare it: certificates, configuration and rules are made where there are none yet."""
        raise NotImplementedError

    def start(self, children: list[Child]) -> StartedServer:
        """Start it, and enter it among `children`; returns its address for the front door.

        Started again after kill -9, of it or of the host, it has the rules of before. Raises
        ServiceError where there is no mosquitto, or it does not start.
        """
        raise NotImplementedError

    def rules(self) -> BrokerRules:
        """Return the rules of the started broker, over a connection of the host's own."""
        raise NotImplementedError


class BrokerRules:
    """Who may talk in which run. Every method is durable and in force when it returns.

    Each raises ServiceError where the broker does not confirm in time; the rule then holds from the
    broker's next start on. Idempotent.
    """

    def open_run(self, run: str) -> None:
        """Let the aggregator of `run`, by its own certificate, talk to members that are let in."""
        raise NotImplementedError

    def open(self, run: str, member_id: str) -> None:
        """Let a member write and read its own topics of `run`, and nothing else of it."""
        raise NotImplementedError

    def close(self, run: str, member_id: str) -> None:
        """Take this back: from now on nothing of `run` passes to or from this member."""
        raise NotImplementedError

    def close_run(self, run: str) -> None:
        """Take all rules of `run` back, its aggregator's too."""
        raise NotImplementedError

    def disconnect(self, member_id: str) -> None:
        """End a member's connections, and refuse it from now on, in all runs (revoked)."""
        raise NotImplementedError

    def runs(self) -> Mapping[str, Sequence[str]]:
        """Return the members that are let in, by run."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the host's own connection."""
        raise NotImplementedError
