"""The researcher's side of `tacit submit`: pack, sign, upload, submit."""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tacit import config
from tacit_services.federation.access import Access
from tacit_services.offers.packing import pack
from tacit_services.offers.researcher_key import ResearcherKey
from tacit_services.settings import data_home, first_with_data

if TYPE_CHECKING:
    from tacit_client import FederationClient, FederationRun


def submitted(
    access: Access,
    client: FederationClient,
    run_files: str,
    name: str | None,
    data: Path | None = None,
    *,
    keep: bool = False,
) -> FederationRun:
    """Submit a run file, the first of several whose data is in `data`; returns how the run stands.

    keep: where there is a run of this name, it is that one, and nothing is submitted. It is signed
    by this user's key, which is made at the first time and stays in the user's data folder. Code
    that runs at the host is copied there where the host is this machine. Raises ConfigError,
    DataError, and the client's errors.
    """
    run_file, stated = first_with_data(run_files, data, partial(config.load, federation=True))
    run = name or stated.run.name
    known = [each for each in client.runs() if keep and each.name == run]
    if known:
        return known[0]
    who = str(client.get("/v1/me")["name"])
    key = ResearcherKey.kept(data_home() / "researcher.pem", who)
    with tempfile.TemporaryDirectory(prefix="tacit-") as folder:
        packed = pack(run_file, run, key, Path(folder))
        submission = packed.submission()
        for file in packed.offer.files:
            client.upload(packed.folder / file)
        for file, digest in submission.at_host.items():
            client.upload(packed.folder / file)
            if access.here is not None and not submission.tests(file):
                shutil.copy(packed.folder / file, access.here / "code" / digest)
        return client.submit(submission.model_dump())
