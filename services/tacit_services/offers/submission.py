"""What a researcher submits, and the folder in which a host keeps it.

The folder has

    RUN/offer.json       the offer, as its researcher signed it
    RUN/submission.json  which files stay at the host, and which of them is the test set
    RUN/files/           the offer's files, and those of the host
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from tacit_services.disk import files
from tacit_services.offers.offer import OFFER, Offer

FILES = "files"
_SUBMISSION = "submission.json"


class Submission(BaseModel):
    """What a host gets. offer: its canonical JSON, as text, byte for byte.

    at_host: SHA-256 of the files that stay at the host, by name; test: the public test set's name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    offer: str = Field(min_length=2, max_length=1 << 22)
    at_host: dict[str, str] = Field({}, max_length=64)
    test: str | None = None

    def tests(self, name: str) -> bool:
        """Return whether a file is the public test set, or lies in it where that is a folder."""
        if self.test is None:
            return False
        return name == self.test or name.startswith(f"{self.test.rstrip('/')}/")

    def keep(self, folder: Path) -> None:
        """Write it into a run's folder, durably. Raises OSError."""
        files.write(folder / OFFER, self.offer.encode(), files.SECRET)
        rest = self.model_dump_json(exclude={"offer"})
        files.write(folder / _SUBMISSION, rest.encode(), files.SECRET)

    @classmethod
    def kept_with(cls, offer: Offer, folder: Path) -> Self:
        """Return what was kept with `offer` in a run's folder.

        Raises OSError, ValueError, TypeError for what is damaged or missing.
        """
        content = json.loads((folder / _SUBMISSION).read_bytes())
        return cls(offer=offer.content().decode(), **content)


def stayed_at_host(folder: Path) -> list[str]:
    """Return the SHA-256 of the files of a submission in `folder` that stay at the host.

    Raises OSError, ValueError for what is damaged or missing.
    """
    content = json.loads((folder / _SUBMISSION).read_bytes())
    return list(content["at_host"].values())
