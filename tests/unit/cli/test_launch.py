from __future__ import annotations

import errno
import os

import pytest
from tacit_services import launch
from tacit_services.edge import main as edge
from tacit_services.settings import EdgeSettings

from tacit.errors import PrivacyError


@pytest.mark.parametrize(
    ("number", "raised"),
    [
        (errno.ENOSPC, PrivacyError),
        (errno.EFBIG, PrivacyError),
        (errno.EROFS, PrivacyError),
        (errno.EADDRINUSE, OSError),
    ],
)
def test_a_disk_that_takes_no_more_ends_an_edge_as_its_ledger_would(
    monkeypatch: pytest.MonkeyPatch, number: int, raised: type[Exception]
) -> None:
    # Given an edge whose file cannot be written,
    def fails(settings: EdgeSettings) -> None:
        raise OSError(number, os.strerror(number), "delays/edge-0")

    monkeypatch.setattr(edge, "main", fails)
    monkeypatch.setenv("TACIT_RUN_FILE", "run.toml")
    # when it works, then a full disk is a line with exit code 5, and no other fault is.
    with pytest.raises(raised, match="delays/edge-0"):
        launch.edge()
