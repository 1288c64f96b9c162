"""Whom a member believes, as its join line has said."""

from __future__ import annotations

from tacit import regular_file
from tacit.errors import ConfigError
from tacit_services.member.member_state import Membership, MemberState
from tacit_services.transport.pinned_authority import FederationAuthority


def believed(state: MemberState, membership: Membership) -> FederationAuthority:
    """Return whom this member believes. Raises ConfigError where the file cannot be read."""
    path = state.tls.ca
    try:
        ca = regular_file.content(path).decode("ascii")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return FederationAuthority(ca, membership.public_web)
