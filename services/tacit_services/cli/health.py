"""`tacit health`: whether a service is well, for a container's health check or a supervisor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.errors import ConfigError, ServiceError
from tacit_services.cli.reach import AGGREGATOR
from tacit_services.cli.say import say
from tacit_services.extras import need

PATIENCE = 5.0  # seconds for an answer


def health(
    file: Annotated[
        Path | None,
        typer.Option(
            envvar="TACIT_HEALTH_FILE", help="where an edge, peer or party says how it stands"
        ),
    ] = None,
    url: Annotated[
        str, typer.Option(envvar="TACIT_URL", help="the aggregator's REST address")
    ] = AGGREGATOR,
    ca: Annotated[
        Path | None, typer.Option(help="certificate of the authority, for an https:// address")
    ] = None,
    silent: Annotated[
        float, typer.Option(min=0, help="seconds without a word in the file, at most")
    ] = 30.0,
    without_broker: Annotated[
        float, typer.Option(min=0, help="seconds without its broker, at most")
    ] = 60.0,
) -> None:
    """Say whether a service is well: an edge by its file, aggregator and enrolment by address."""
    need("edge")
    if file is not None:
        from tacit_services.worker.heartbeat import judged

        typer.echo(judged(file, silent, without_broker))
    else:
        say(f"{url}: {_answer(url, ca)}")


def _answer(url: str, ca: Path | None) -> str:
    """Return the answer of a service that listens. Raises ServiceError where it is not well."""
    import ssl

    import httpx

    from tacit_services.transport.patient_http import patient_client

    try:
        if ca:
            trusted = ssl.create_default_context(cafile=ca)
        else:
            trusted = ssl.create_default_context()
        with patient_client(url, trusted, PATIENCE) as web:
            answer = web.get("/readyz")
            if answer.status_code == httpx.codes.NOT_FOUND:  # enrolment: alive is ready
                answer = web.get("/healthz")
            content = answer.json()
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise ConfigError(f"--url={url!r}: expected http://HOST:PORT ({error})") from error
    except (httpx.HTTPError, ValueError, RecursionError) as error:
        raise ServiceError(f"{url}: {str(error) or type(error).__name__}") from error
    except OSError as error:
        raise ConfigError(f"--ca {ca}: {error.strerror or error}") from error
    if not isinstance(content, dict):
        raise ServiceError(f"{url}: not a service of tacit")
    if not answer.is_success or "status" not in content:
        raise ServiceError(f"{url}: {content.get('detail', 'not a service of tacit')}")
    return str(content["status"])
