"""The researcher's side of `tacit submit`: pack, sign, upload, submit."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tacit import config
from tacit_services.federation.access import Access
from tacit_services.offers.packing import PackedOffer, pack
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
        for file in packed.offer.files:
            client.upload(packed.folder / file)
        at_host = _at_host(packed)
        for file, digest in at_host.items():
            client.upload(packed.folder / file)
            if access.here is not None and not _is_test(packed, file):
                shutil.copy(packed.folder / file, access.here / "code" / digest)
        return client.submit(
            {"offer": packed.offer.content().decode(), "at_host": at_host, "test": packed.test}
        )


def _at_host(packed: PackedOffer) -> dict[str, str]:
    """Return the SHA-256 of each file that stays at the host, by name; of folders, their files."""
    paths = [
        path
        for name in packed.at_host
        for path in ([packed.folder / name, *sorted((packed.folder / name).rglob("*"))])
        if path.is_file()
    ]
    return {path.relative_to(packed.folder).as_posix(): _digest(path) for path in paths}


def _is_test(packed: PackedOffer, file: str) -> bool:
    return packed.test is not None and (
        file == packed.test or file.startswith(packed.test.rstrip("/") + "/")
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
