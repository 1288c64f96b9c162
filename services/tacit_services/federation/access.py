"""How a command reaches a federation's host: by its folder on this machine, or by its address.

A person's token is `SECRET.SHA256`: the secret, and by which authority the host is known. So a
token is all that a researcher elsewhere needs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.errors import ConfigError
from tacit_services.disk.secret_file import token_in
from tacit_services.enrollment.authority import CA
from tacit_services.federation import federation_settings
from tacit_services.transport import pinned_authority
from tacit_services.transport.address import split_host_port
from tacit_services.transport.pinned_authority import PREFIX, FederationAuthority
from tacit_services.transport.proxy import DIRECT, Proxies

if TYPE_CHECKING:
    from tacit_client import FederationClient

_TOKEN = re.compile(r"([A-Za-z0-9_-]{16,})(?:\.([0-9a-f]{64}))?")


@dataclass(frozen=True, slots=True)
class Access:
    """The way to a host, with a person's token. here: its folder, on the host's own machine."""

    url: str
    token: str
    authority: FederationAuthority
    proxies: Proxies = DIRECT
    here: Path | None = None

    def client(self) -> FederationClient:
        """Return a client of the host, which connects at its first request."""
        from tacit_client import FederationClient

        trusted = self.authority.context()
        return FederationClient(self.url, self.token, trusted, self.proxies.url_before(self.url))


def of_folder(folder: Path) -> Access:
    """Return the operator's way to the federation in `folder`, on the host's own machine.

    Raises ConfigError where there is none.
    """
    ca = folder / "ca" / CA
    token = folder / "people" / "operator"
    if not ca.is_file() or not token.is_file():
        raise ConfigError(f"--federation {folder}: no federation is there; tacit serve makes one")
    settings = federation_settings.served(folder)
    host, port = split_host_port(settings.listen)
    shown = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host  # noqa: S104 (compared with)
    authority = federation_settings.authority(folder, settings)
    secret = token.read_text(encoding="ascii").strip()
    return Access(f"https://{shown}:{port}", secret, authority, here=folder)


def of_url(url: str, token_file: Path, ca: str | None, proxies: Proxies) -> Access:
    """Return the way to the host at `url` with the token in a file.

    ca: `sha256:…`, where the token does not say by what the host is known. Raises ConfigError,
    ServiceError.
    """
    if (match := _TOKEN.fullmatch(token_in(token_file, "--token-file"))) is None:
        raise ConfigError(f"--token-file {token_file}: holds no token")
    secret, digest = match.groups()
    pin = ca or (PREFIX + digest if digest else None)
    if pin is None:
        raise ConfigError("--ca: missing; sha256:… of the host, as `tacit serve` prints it")
    return Access(url, secret, pinned_authority.fetched(url, pin, proxies), proxies)


def token_to_give(secret: str, authority: FederationAuthority) -> str:
    """Return a person's token as it is given away: with what the host is known by."""
    return f"{secret}.{authority.pin().removeprefix(PREFIX)}"
