"""The settings of the services, read from `TACIT_*` variables in the environment.

Importing this module reads nothing. `read_settings` does, and the result is passed on as an
argument.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from tacit import regular_file, shown
from tacit.errors import ConfigError, DataError
from tacit.privacy import policy
from tacit.privacy.policy import Policy
from tacit_services.transport.address import UNIX, HostPorts, ListenPlace, split_host_port
from tacit_services.transport.proxy import Proxies
from tacit_services.transport.tls import Tls

if TYPE_CHECKING:
    from tacit.config import RunFile

S = TypeVar("S", bound="ServiceSettings")
KNOWN_SALT = "tacit"
ANOTHER_RUN = "A new run needs another TACIT_RUN_ID; the ledgers go on."


class ServiceSettings(BaseSettings):
    """The settings that every service has."""

    model_config = SettingsConfigDict(env_prefix="TACIT_", extra="ignore", frozen=True)

    run_file: str = Field(
        description="run file; several, separated by ':', mean the first whose data is there"
    )
    run_id: str = Field(
        "run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="names the topics"
    )
    broker: HostPorts = Field(
        "127.0.0.1:1883", description="HOST:PORT; of a cluster all, with commas between"
    )
    tls_ca: Path | None = Field(
        None, description="certificates of the authorities that the broker's may come from"
    )
    tls_cert: Path | None = Field(
        None, description="own certificate for the broker; its name is the user's"
    )
    tls_key: Path | None = Field(None, description="own key")
    data: Path | None = Field(None, description="folder with the datasets; not needed for digits")
    edges: int | None = Field(None, gt=0, description="edges.count instead of the run file's")
    seed: int | None = Field(None, ge=0, description="run.seed instead of the run file's")
    salt: str = Field(
        KNOWN_SALT,
        min_length=1,
        description="secret of a vertical run's parties and server: names records",
    )
    chunk: int = Field(256 * 1024, ge=1024, le=1 << 26, description="largest MQTT payload, bytes")
    connect_timeout: float = Field(
        60.0, gt=0, description="seconds to wait for the broker and store at start"
    )
    threads: int = Field(1, ge=1, le=1024, description="torch threads of this process")
    log: Literal["debug", "info", "warning"] = "info"
    log_format: Literal["text", "json"] = "text"

    def tls(self) -> Tls | None:
        """Return the files for TLS with the broker, or None for a plain connection.

        Raises ConfigError unless all three of `TACIT_TLS_CA`, `TACIT_TLS_CERT` and `TACIT_TLS_KEY`
        are set, or none is.
        """
        paths = {
            "TACIT_TLS_CA": self.tls_ca,
            "TACIT_TLS_CERT": self.tls_cert,
            "TACIT_TLS_KEY": self.tls_key,
        }
        missing = [name for name, path in paths.items() if path is None]
        if missing and len(missing) < len(paths):
            present = next(name for name in paths if name not in missing)
            raise ConfigError(
                f"{present}={str(paths[present])!r}: {' and '.join(missing)} must be set as well"
            )
        if self.tls_ca is None or self.tls_cert is None or self.tls_key is None:
            return None
        return Tls(self.tls_ca, self.tls_cert, self.tls_key)

    def judge_salt(self, log: logging.Logger, *, own: bool) -> None:
        """Say so where the secret of a vertical run is the one that everybody knows.

        own: whether records are people of own columns. Raises ConfigError then.
        """
        if self.salt == KNOWN_SALT and own:
            raise ConfigError(
                "TACIT_SALT: not set; it is the secret by which parties and label holder name "
                "their people, so give all of them one, as `openssl rand -hex 16` prints it"
            )
        if self.salt == KNOWN_SALT:
            log.warning(
                "TACIT_SALT is not set, and %r is no secret: whoever hears the parties and can "
                "guess an id knows its record's name; give all parties and their server one",
                self.salt,
            )

    def load_run(self) -> RunFile:
        """Return the run file, read and checked: of several, the first whose data is there.

        Raises ConfigError for a run file that is wrong, DataError where the data of none is there.
        """
        from tacit import config  # with torch, for which who asks for a policy need not wait

        load = partial(config.load, edges=self.edges, seed=self.seed)
        return first_with_data(self.run_file, self.data, load)[1]


def first_with_data(
    files: str, data: Path | None, load: Callable[[Path], RunFile]
) -> tuple[Path, RunFile]:
    """Return the run file, read by `load`: of several, ':' between, the first with data in `data`.

    Raises ConfigError for a run file that is wrong, DataError where the data of none is there.
    """
    paths = [Path(name) for name in files.split(":")]
    for path in paths:
        run = load(path)
        # Of one file the error, which names the missing data, comes when that is read.
        if len(paths) == 1 or run.source.available(data):
            return path, run
    raise DataError(f"run_file={files}: the data of none of them is in data={data}")


class AggregatorSettings(ServiceSettings):
    """The settings of `tacit aggregator`."""

    offer: Path | None = Field(
        None, description="folder of a run that a federation's host has taken, not a run file"
    )
    store: str = "sqlite:///state/store.db"
    out: Path = Path("out/run")
    http: ListenPlace = Field(
        "127.0.0.1:8000", description="REST address: HOST:PORT, or unix:/PATH for this machine"
    )
    http_hosts: str = Field(
        "",
        description="names, ',' between, under which REST may be asked for, beside localhost, "
        "this machine's own and addresses; '*': any",
    )
    token_file: Path | None = Field(
        None, description="operator token for writes; made if it does not exist"
    )
    read_token_file: Path | None = Field(
        None, description="token for reads; made if it does not exist. Without it, reads are open"
    )
    receipts: Path = Field(
        Path("state/receipts.key"),
        description="key that proves receipts, by which a store that has lost messages is noticed; "
        "made if it does not exist",
    )
    linger: bool = Field(False, description="go on serving REST after the run has ended")
    trusted: Path = Field(
        Path("state/trusted.db"), description="ledger of the edges, where privacy.noise_at = server"
    )
    labels: Path = Field(
        Path("state/labels.safetensors"), description="noisy labels of a vertical run, drawn once"
    )
    journal_file: Path | None = Field(
        None, description="keep every accepted message here as well, for tacit replay"
    )
    max_journal: int = Field(
        4096, gt=0, description="journal entries before edges are told to wait"
    )
    max_message: int = Field(1 << 28, gt=0, description="largest update, bytes")

    def known_hosts(self) -> list[str]:
        """Return names under which REST may be asked for: of `http`, and of `http_hosts`."""
        hosts = [name.strip() for name in self.http_hosts.split(",")]
        if self.http.startswith(UNIX):
            own = "localhost"
        else:
            own = split_host_port(self.http)[0]
        return [own, *filter(None, hosts)]


class EdgeSettings(ServiceSettings):
    """The settings of `tacit edge`, `tacit peer` and `tacit party`."""

    identities: Path = Path("state/identities")
    identity: int | None = Field(
        None, ge=0, description="take this identity only; default: the first free one"
    )
    ledger: str | None = Field(
        None, description="privacy ledger; {n}: the identity [identities/{n}/ledger.db]"
    )
    device: str = "cpu"
    patience: float = Field(
        5.0, gt=0, description="seconds without an answer before the same bytes go out again"
    )
    turns: Path | None = Field(
        None,
        description="a file, by whose lock edges that share a GPU take turns at computing; or the "
        "named pipe of `tacit run`",
    )
    rows_alone: bool = Field(
        True,
        description="compute the drawn rows only, where the model has kernels for it and they pass "
        "their trial; false: always a batch of a fixed shape. Private pushes are held back either "
        "way",
    )
    enroll_url: str | None = Field(
        None, description="https://HOST:PORT that signs a certificate for this identity"
    )
    enroll_token_file: Path | None = Field(None, description="token for enroll_url")
    proxy: str | None = Field(
        None,
        description="http://[USER:PASSWORD@]HOST:PORT, a proxy (CONNECT) before broker and "
        "enroll_url",
    )
    no_proxy: str = Field(
        "", description="names, addresses and networks, ',' between, that need no proxy"
    )
    serve: bool = Field(
        False,
        description="a vertical party goes on answering after the run's end, for tacit predict",
    )
    left_file: Path | None = Field(
        None, description="a line for each message that leaves: when, what, bytes"
    )
    health_file: Path | None = Field(
        None, description="says every few seconds how this worker stands, for tacit health"
    )
    policy: Path | None = Field(
        None, description="what the owner of the data allows; default: what the run file says"
    )

    def proxies(self) -> Proxies:
        """Return the proxies before broker and enrolment server. Raises ConfigError."""
        try:
            return Proxies.parsed(self.proxy, self.no_proxy)
        except ConfigError as error:
            raise ConfigError(f"TACIT_PROXY: {error}") from error


def data_home() -> Path:
    """Return the folder of the user's data, where ledgers of own data lie.

    It is `$XDG_DATA_HOME/tacit`, else ~/.local/share/tacit.
    """
    configured = os.environ.get("XDG_DATA_HOME", "")
    # A relative path is to be ignored, says the XDG base directory specification.
    if Path(configured).is_absolute():
        root = Path(configured)
    else:
        root = Path.home() / ".local" / "share"
    return root / "tacit"


def load_policy(path: Path | None) -> Policy:
    """Read and check the policy file of the data's owner; None: a policy that allows every run.

    Raises ConfigError where it is missing, unreadable or wrong.
    """
    if path is None:
        return Policy(noise_at=("edge", "server"))
    try:
        text = regular_file.text(path)
    except OSError as error:
        raise ConfigError(f"policy {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"policy {path}: is not UTF-8 text; save it as UTF-8") from error
    return policy.parse(text, f"policy {path}")


def policy_beside(folder: Path) -> Path | None:
    """Return the owner's policy in a run file's folder, as `tacit new` writes it; None: none is."""
    policy_file = folder.absolute() / "policy.toml"
    if policy_file.exists():
        return policy_file
    return None


def read_settings(kind: type[S], **overrides: Any) -> S:
    """Read settings of class `kind` from the environment; `overrides` that are not None win.

    Raises ConfigError, in one line that names every variable that is wrong, and its value.
    """
    explicit = {name: value for name, value in overrides.items() if value is not None}
    try:
        return kind(**explicit)
    except ValidationError as error:
        lines = []
        for item in error.errors(include_url=False):
            name = str(item["loc"][0])
            variable = f"TACIT_{name.upper()}"
            value = explicit.get(name, os.environ.get(variable))
            lines.append(
                f"{variable}={shown.quoted(value)}: {item['msg'].removeprefix('Value error, ')}"
            )
        raise ConfigError("; ".join(lines)) from error
