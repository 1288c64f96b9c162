"""The settings of a federation's host: flags, then TACIT_* variables, then FOLDER/federation.toml.

The file is written when the folder is made, with every setting and what it means.
"""

from __future__ import annotations

import json
import os
import socket
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tacit import regular_file, shown
from tacit.errors import ConfigError
from tacit_services.disk import files
from tacit_services.enrollment.authority import CA
from tacit_services.federation import organisation
from tacit_services.transport.address import HostPort, HostPorts, split_host_port
from tacit_services.transport.pinned_authority import FederationAuthority

FILE = "federation.toml"
BELIEVED = "believed.crt"
WEB = "enrollment"  # the folder, in ca/, of the HTTPS server's certificate, as of tacit pki
_SERVED = "served.json"
_ANY = ("0.0.0.0", "::", "")  # noqa: S104  (compared with, not bound to)


class FederationSettings(BaseModel):
    """The settings of `tacit serve`; each is a key of federation.toml, a flag and a variable."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listen: HostPort = Field("0.0.0.0:8443", description="the one port: HOST:PORT")
    hosts: tuple[str, ...] = Field(
        (), description="names and addresses of this host, the first for members; [] finds them"
    )
    broker: HostPorts | None = Field(
        None,
        description="an organisation's own broker, of a cluster all nodes with commas between; "
        "left out: one is started",
    )
    store: str | None = Field(
        None, description="an organisation's own store, a URL; left out: one is started"
    )
    certificate: Path | None = Field(
        None, description="certificate for HTTPS that the world knows; left out: the authority's"
    )
    key: Path | None = Field(None, description="its key")
    organisation_ca: Path | None = Field(
        None,
        description="roots of an organisation's own authority, which members believe for "
        "`certificate` and `broker`; left out: none",
    )
    data: Path | None = Field(None, description="folder with published test sets")
    parallel: int = Field(4, gt=0, le=64, description="runs that train at a time; others wait")
    token_uses: int | None = Field(
        None, gt=0, description="how many may join by the token that is printed; left out: any"
    )
    token_hours: float = Field(24.0, gt=0, le=8760, description="for how long it is valid")
    certificate_days: float = Field(
        365.0, gt=0, le=3650, description="days of a member's certificate, which it renews itself"
    )
    join_file: Path | None = Field(
        None, description="file that gets the token that is printed, for `tacit join --token-file`"
    )
    show: HostPort | None = Field(
        None, description="plain HTTP, for this machine: page and REST of the newest run"
    )
    log: Literal["debug", "info", "warning"] = Field("info", description="what the log shows")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key: set both, or none")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The names and addresses under which members reach this host, the first is shown."""
        own = self.hosts or (*_own_names(split_host_port(self.listen)[0]),)
        return tuple(dict.fromkeys((*own, "localhost", "127.0.0.1")))

    @property
    def url(self) -> str:
        """The address to give away."""
        host = self.names[0]
        port = split_host_port(self.listen)[1]
        return f"https://{f'[{host}]' if ':' in host else host}:{port}"


def read(folder: Path, flags: Mapping[str, Any]) -> FederationSettings:
    """Return the settings of the federation in `folder`; `flags` that are None are not set.

    Raises ConfigError, in one line that names each wrong setting and where it stands.
    """
    stated: dict[str, Any] = {}
    places: dict[str, str] = {}
    for place, values in _sources(folder, flags):
        for name, value in values.items():
            stated[name] = value
            places[name] = place.format(name=name, upper=name.upper(), flag=name.replace("_", "-"))
    try:
        return FederationSettings.model_validate(stated)
    except ValidationError as error:
        raise ConfigError("; ".join(_problem(item, places) for item in error.errors())) from error


def write(folder: Path, settings: FederationSettings) -> None:
    """Write federation.toml with every setting, what it means, and its value. Raises OSError."""
    lines = ["# The settings of this federation; `tacit serve --help` lists them as flags."]
    values = settings.model_dump(mode="json")
    for name, field in FederationSettings.model_fields.items():
        lines.append(f"\n# {field.description}")
        value = values[name]
        if value is None:
            lines.append(f"# {name} =")
        else:
            lines.append(f"{name} = {_toml(value)}")
    files.write(folder / FILE, ("\n".join(lines) + "\n").encode(), files.PUBLIC)


def note_served(folder: Path, settings: FederationSettings) -> None:
    """Write down with which settings `folder` is served, for commands beside it. Raises OSError."""
    content = settings.model_dump_json(exclude_none=True).encode()
    files.write(folder / _SERVED, content, files.PUBLIC)


def note_believed(folder: Path, settings: FederationSettings) -> Path:
    """Write down whom members believe, the federation's authority first; returns the file.

    Raises ConfigError for an organisation's authority that is none, OSError.
    """
    text = (folder / "ca" / CA).read_text(encoding="ascii")
    if settings.organisation_ca is not None:
        text += organisation.roots(settings.organisation_ca)
    path = folder / BELIEVED
    files.write(path, text.encode("ascii"), files.PUBLIC)
    return path


def authority(folder: Path, settings: FederationSettings) -> FederationAuthority:
    """Return what members know the host of `folder` by, once it was served. Raises OSError."""
    path = folder / BELIEVED
    if not path.exists():  # it was last served by a tacit that had no such file
        path = folder / "ca" / CA
    ca = path.read_text(encoding="ascii")
    return FederationAuthority(ca, public_web=settings.certificate is not None)


def served(folder: Path) -> FederationSettings:
    """Return the settings with which `folder` is served, or was last: flags may have changed them.

    Of one that never was: those of its file. Raises ConfigError.
    """
    path = folder / _SERVED
    try:
        return FederationSettings.model_validate_json(regular_file.content(path))
    except FileNotFoundError:
        return read(folder, {})
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _sources(folder: Path, flags: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    variables: dict[str, Any] = {}
    for name in FederationSettings.model_fields:
        if (value := os.environ.get(f"TACIT_{name.upper()}")) is not None:
            variables[name] = value.split(",") if name == "hosts" else value
    given = {name: value for name, value in flags.items() if value is not None}
    return [(f"{folder / FILE}: {{name}}", _file(folder)), ("TACIT_{upper}", variables),
            ("--{flag}", given)]  # fmt: skip


def _file(folder: Path) -> dict[str, Any]:
    path = folder / FILE
    try:
        return tomllib.loads(regular_file.text(path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error


def _problem(item: Any, places: dict[str, str]) -> str:
    message = item["msg"].removeprefix("Value error, ")
    if not item["loc"]:
        return str(message)
    name = str(item["loc"][0])
    if item["type"] == "extra_forbidden":
        message = "no such setting"
    return f"{places.get(name, name)}={shown.quoted(item['input'])}: {message}"


def _toml(value: Any) -> str:
    """Return a value as TOML has it; strings and lists are as in JSON."""
    return json.dumps(value, ensure_ascii=False)


def _own_names(listen: str) -> list[str]:
    """Return the names of this machine: where it listens, or by which others may reach it."""
    if listen not in _ANY:
        return [listen]
    return list(filter(None, (_address(), socket.gethostname())))


def _address() -> str:
    """Return the address from which this machine would ask others; "" where it has no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # of documents: nothing is sent
        except OSError:
            return ""
        address: str = probe.getsockname()[0]
        return address
