"""A machine becomes a member: its key is made here, and stays; the host signs a certificate."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from tacit import regular_file
from tacit.errors import ConfigError, ServiceError
from tacit_services.disk import files
from tacit_services.enrollment import certificates
from tacit_services.enrollment.join_client import JoinClient
from tacit_services.member.member_state import MemberState
from tacit_services.transport.pinned_authority import FederationAuthority
from tacit_services.transport.proxy import DIRECT, Proxies
from tacit_services.versions import own_version

_IDENTITY = re.compile(r"edge-(0|[1-9][0-9]{0,3})")  # of one of MOST_MEMBERS


def joined(
    state: MemberState,
    url: str,
    token: str,
    authority: FederationAuthority,
    name: str | None,
    proxies: Proxies = DIRECT,
    before: str | None = None,
) -> tuple[str, str]:
    """Become a member of the federation at `url`; returns the id and the name there.

    before: the id that this key has there already, or None. The key is durable before it is
    shown, so an answer that was lost can be had again. Raises ConfigError where the host refuses,
    or gives the key another id, ServiceError where it does not answer.
    """
    tls = state.tls
    if before is None:
        files.write(tls.ca, authority.ca.encode("ascii"), files.PUBLIC)
    elif not certificates.is_same(tls.ca.read_bytes(), authority.ca.encode("ascii")):
        raise ConfigError(
            f"--state {state.folder}: is a membership in another federation than the line's; take "
            "another --state"
        )
    key = _own_key(tls.key)
    host = JoinClient(url, proxies)
    member = host.enroll(
        authority.context(),
        token,
        key,
        name=name,
        machine=platform.node() or "member",
        version=own_version(),
    )
    if not _IDENTITY.fullmatch(member.edge):
        raise ServiceError(f"{url}: {member.edge[:80]!r} is no member's id")
    if not certificates.is_issued_by(member.certificate, authority.ca.encode("ascii")):
        raise ServiceError(f"{url}: its certificate is not of the federation's authority")
    if before not in (None, member.edge):
        raise ConfigError(
            f"{url}: knows this member as {member.edge}, and its state says {before}; the host's "
            "register of members was lost: ask its administrator, and take another --state"
        )
    files.write(tls.ca, authority.ca.encode("ascii"), files.PUBLIC)
    files.write(tls.cert, certificates.pem(member.certificate), files.PUBLIC)
    return member.edge, member.name


def _own_key(path: Path) -> certificates.Key:
    try:
        if path.exists():
            return certificates.read_key(regular_file.content(path))
        key = certificates.new_key()
        files.write(path, certificates.key_pem(key), files.SECRET)
        return key
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
