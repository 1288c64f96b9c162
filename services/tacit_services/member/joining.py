"""A machine becomes a member: its key is made here, and stays; the host signs a certificate."""

from __future__ import annotations

import platform
import time
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path

import httpx
from cryptography import x509

from tacit import regular_file
from tacit.errors import ConfigError, ServiceError
from tacit_services.disk import files
from tacit_services.enrollment import certificates
from tacit_services.member.member_state import MemberState
from tacit_services.transport.pinned_authority import Authority
from tacit_services.transport.proxy import DIRECT, Proxies
from tacit_services.transport.rest_client import unreachable

_SECONDS = 20.0
_CLOCK = 300.0  # seconds by which this machine's clock may differ from the host's


def joined(
    state: MemberState,
    url: str,
    token: str,
    authority: Authority,
    name: str | None,
    proxies: Proxies = DIRECT,
) -> tuple[str, str]:
    """Become a member of the federation at `url`; returns the id and the name there.

    The key is durable before it is shown, so an answer that was lost can be had again. Raises
    ConfigError where the host refuses, or this machine's clock is wrong; ServiceError where it does
    not answer.
    """
    tls = state.tls
    files.write(tls.ca, authority.ca.encode("ascii"), files.PUBLIC)
    key = _own_key(tls.key)
    body = {
        "csr": certificates.pem(certificates.request(key, "member")).decode("ascii"),
        "name": name,
        "machine": platform.node() or "member",
        "version": own_version(),
    }
    try:
        with httpx.Client(
            verify=authority.context(),
            trust_env=False,
            proxy=proxies.url_before(url),
            timeout=_SECONDS,
        ) as client:
            answer = client.post(
                f"{url.rstrip('/')}/v1/enroll",
                json=body,
                headers={"Authorization": f"Bearer {token}"},
            )
    except httpx.TransportError as error:
        raise unreachable(url, error, proxies) from error
    _check_clock(answer)
    if not answer.is_success:
        raise ConfigError(f"{url}: {_detail(answer)}")
    try:
        content = answer.json()
        certificate = str(content["certificate"])
        x509.load_pem_x509_certificate(certificate.encode("ascii"))
        identity = str(content["edge"])
        shown = str(content["name"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ServiceError(f"{url}: not a federation's answer") from error
    files.write(tls.cert, certificate.encode("ascii"), files.PUBLIC)
    return identity, shown


def own_version() -> str:
    """Return the version of this tacit; "" from a source tree that is not installed."""
    try:
        return installed("tacit")
    except PackageNotFoundError:
        return ""


def _own_key(path: Path) -> certificates.Key:
    try:
        if path.exists():
            return certificates.read_key(regular_file.content(path))
        key = certificates.new_key()
        files.write(path, certificates.key_pem(key), files.SECRET)
        return key
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _check_clock(answer: httpx.Response) -> None:
    """Raise ConfigError where the host's clock and ours differ by more than certificates bear."""
    try:
        theirs = parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError, TypeError):
        return
    apart = time.time() - theirs
    if abs(apart) > _CLOCK:
        ahead = "ahead of" if apart > 0 else "behind"
        raise ConfigError(
            f"this machine's clock is {abs(apart):.0f} s {ahead} the host's; set it, as "
            "certificates are valid by the clock"
        )


def _detail(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["detail"])[:300]
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"{answer.status_code}, not a federation's answer"
