"""A run file is packed that came by the host's page: its model is built, its files are read."""

from __future__ import annotations

from pathlib import Path

from tacit.errors import ConfigError, ConfigFaults, DataError
from tacit_services.offers.packing import pack_data
from tacit_services.offers.researcher_key import ResearcherKey

_MOST_FAULTS = 100


def answer(text: str, run: str, key: str, researcher: str, folder: str) -> dict[str, object]:
    """Return the submission of the run file `text`, or what is wrong with it, for another process.

    run: "" for the name that it states. key: the file of the host's, which signs in the name of
    `researcher`. folder: where its files are.
    """
    try:
        signer = ResearcherKey.kept(Path(key), researcher, "host")
        submission = pack_data(text, run or None, signer, Path(folder)).submission()
    except (ConfigError, DataError) as error:
        return {"faults": _faults(error)}
    return {"submission": submission.model_dump()}


def _faults(error: ConfigError | DataError) -> list[str]:
    faults = list(error.faults) if isinstance(error, ConfigFaults) else [str(error)]
    if (more := len(faults) - _MOST_FAULTS) > 0:
        faults = [*faults[:_MOST_FAULTS], f"and {more:,} more"]
    return faults
