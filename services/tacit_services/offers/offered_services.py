"""The services of one offered run: `python -m tacit_services.offers.offered_services NAME`.

NAME is `aggregator` or `edge`. Both read TACIT_OFFER, a folder with `offer.json` and the offer's
files, beside the settings that they always have. An edge's number in the federation is its
TACIT_IDENTITY.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pydantic import Field

from tacit.config.site import Site
from tacit.errors import ConfigError
from tacit_services import launch, logs
from tacit_services.aggregator.main import main as serve
from tacit_services.edge.main import main as work
from tacit_services.offers.offer import OFFER
from tacit_services.offers.offer_reading import definition_at_host, definition_at_member, read_offer
from tacit_services.settings import AggregatorSettings, EdgeSettings, read_settings


class HostSettings(AggregatorSettings):
    """The settings of an offered run's aggregator."""

    run_file: str = OFFER
    offer: Path = Field(description="folder with offer.json, and the offer's files")
    offer_test: str | None = Field(None, description="the public test set, in that folder")


class MemberSettings(EdgeSettings):
    """The settings of a member's worker in an offered run."""

    run_file: str = OFFER
    offer: Path = Field(description="folder with offer.json, and the offer's files")
    offer_data: str = Field(description="the member's rows: a file, a folder, or module:name")
    offer_rows: int | None = Field(None, gt=0, description="public: rows that the member states")
    offer_name: str | None = Field(None, description="whose ledger this is")


def aggregator() -> None:
    """Serve an offered run. Raises TacitError."""
    settings = read_settings(HostSettings)
    logs.to_stderr(settings.log, settings.log_format)
    offer = read_offer(settings.offer)
    serve(settings, definition_at_host(offer, settings.offer, settings.offer_test))


def edge() -> None:
    """Work in an offered run with the member's rows. Raises TacitError."""
    settings = read_settings(MemberSettings)
    logs.to_stderr(settings.log, settings.log_format)
    if settings.identity is None:
        raise ConfigError("TACIT_IDENTITY: missing; it is the member's number in its federation")
    rows, name = settings.offer_rows, settings.offer_name
    site = Site(settings.identity, Path(), rows, name).of(settings.offer_data, Path())
    run = definition_at_member(read_offer(settings.offer), settings.offer, site)
    work(settings.model_copy(update={"data": site.data}), run)


if __name__ == "__main__":
    launch.run({"aggregator": aggregator, "edge": edge}[sys.argv[1]])
