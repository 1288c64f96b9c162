"""A run that was submitted, as its host has it."""

from __future__ import annotations

from pathlib import Path

from tacit.config import RunFile
from tacit.errors import ConfigError, WireError
from tacit_services.offers.offer_reading import definition_at_host, read_offer
from tacit_services.offers.submission import FILES, Submission


def submitted_run(folder: Path) -> RunFile:
    """Return the run that was submitted into `folder`, as its host has it.

    Raises ConfigError, DataError for what is damaged or missing.
    """
    try:
        offer = read_offer(folder)
        submission = Submission.kept_with(offer, folder)
    except (OSError, ValueError, TypeError, WireError) as error:
        raise ConfigError(f"run {folder}: {error}") from error
    return definition_at_host(offer, folder / FILES, submission.test)
