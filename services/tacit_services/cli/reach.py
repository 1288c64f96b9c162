"""How a command reaches a federation's host: four options, which many commands have."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.errors import ConfigError, ServiceError, TacitError
from tacit_services.cli.option_group import option_group

if TYPE_CHECKING:
    from tacit_client import FederationClient

    from tacit_services.federation.access import Access

AGGREGATOR = "http://127.0.0.1:8000"  # where one aggregator without a federation serves REST
# The error, and so the exit code, for each status code that a host answers; others: TacitError.
KINDS: dict[int, type[TacitError]] = {
    401: ConfigError,
    403: ConfigError,
    404: ConfigError,
    409: ConfigError,
    413: ConfigError,
    422: ConfigError,
    429: ServiceError,
    503: ServiceError,
    507: ServiceError,
}


@dataclass(frozen=True, slots=True)
class Reach:
    """The options by which a host is reached; `reaching` gives a command all of them.

    federation: its folder, at the host. url, token_file, ca: its address, with the token, and the
    authority where the token does not say it.
    """

    federation: Annotated[
        Path | None,
        typer.Option(
            "--federation",
            metavar="FOLDER",
            envvar="TACIT_FEDERATION",
            help="at its host: its folder",
        ),
    ] = None
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", envvar="TACIT_URL", help="from elsewhere: https://HOST:PORT"),
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option(envvar="TACIT_TOKEN_FILE", help="from elsewhere: file with your token"),
    ] = None
    ca: Annotated[
        str | None,
        typer.Option(
            metavar="sha256:…",
            envvar="TACIT_CA",
            help="the host's, where the token does not have it",
        ),
    ] = None

    @property
    def aggregator(self) -> str:
        """The address of one aggregator without a federation."""
        return self.url or AGGREGATOR

    @property
    def a_host(self) -> bool:
        """Whether it names a federation's host: a folder, or an address of HTTPS."""
        return self.federation is not None or (self.url or "").startswith("https://")

    def names_run(self, run: Path) -> bool:
        """Whether `run`, where a command takes a folder as well, is the name of a run at the host.

        An address alone, which may stand in the environment, leaves a folder that is there one.
        """
        return self.federation is not None or (self.a_host and not run.exists())

    def access(self) -> Access:
        """Return the way to the host. Raises ConfigError, ServiceError."""
        from tacit_services.federation import access
        from tacit_services.transport.proxy import Proxies

        if self.federation is not None:
            return access.of_folder(self.federation)
        if self.url is None or self.token_file is None:
            raise ConfigError(
                "--federation: missing; a folder at its host, or --url and --token-file from "
                "elsewhere"
            )
        return access.of_url(self.url, self.token_file, self.ca, Proxies.of_environment(os.environ))

    @contextmanager
    def client(self) -> Iterator[FederationClient]:
        """Yield a client of the host, whose errors become tacit's."""
        access = self.access()
        with answered(access.url), access.client() as client:
            yield client


@dataclass(frozen=True, slots=True)
class ReadingReach(Reach):
    """The same for commands that only read: one aggregator may have a token for that alone."""

    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar=["TACIT_READ_TOKEN_FILE", "TACIT_TOKEN_FILE"], help="file with your token"
        ),
    ] = None


@contextmanager
def answered(url: str) -> Iterator[None]:
    """Let the client's errors become tacit's; what a host answers is shown in its own words."""
    from tacit_client import ApiError, Unreachable

    try:
        yield
    except Unreachable as error:
        raise ServiceError(f"{error}; does `tacit serve` run there?") from error
    except ApiError as error:
        raise KINDS.get(error.status, TacitError)(f"{url}: {error.detail}") from error


def reaching(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of `Reach` in the place of its parameter `reach`."""
    return option_group(command, "reach", Reach)
