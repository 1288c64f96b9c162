"""Run files that came by the host's page, packed in a process of its own each.

Its writer chooses how large its model is, and how much its reader has to do. So that process has
limits, which the host does not share.
"""

from __future__ import annotations

from pathlib import Path

from tacit.errors import ConfigFaults
from tacit_services.children.child_limits import ChildLimits
from tacit_services.children.preload import answer_of
from tacit_services.offers.submission import Submission

PACKING = ChildLimits.of_machine(seconds=120.0, answer=1 << 24)
_MODULE = "tacit_services.federation.offer_packing"


def packed_apart(
    text: str,
    run: str | None,
    key: Path,
    researcher: str,
    folder: Path,
    log: Path,
    limits: ChildLimits,
) -> Submission:
    """Return the submission of the run file `text`, as `pack_data` makes it.

    key: the file of the host's. researcher: in whose name it signs. folder: where the run file's
    files are. log: what the process prints is put there. Raises ConfigFaults with all that is
    wrong, LimitPassed where it is more than the process may take, ServiceError where that ends by
    itself.
    """
    answer = answer_of(
        _MODULE, log, text, run or "", str(key), researcher, str(folder), limits=limits
    )
    if "faults" in answer:
        raise ConfigFaults("", answer["faults"])
    return Submission(**answer["submission"])
