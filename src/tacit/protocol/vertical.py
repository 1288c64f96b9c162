"""The messages of a vertical run's roles, beside Hello, Retired and Halt: frozen values, no bytes.

Records are rows 0 to n - 1 of the roster, in the server's order; the first `records` of them are
trained on.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.datasets.alignment import NameHashes
from tacit.privacy.accounting import History
from tacit.privacy.ledger import Charged
from tacit.privacy.release.embeddings import ReleasedEmbedding


@dataclass(frozen=True, slots=True, eq=False)
class UploadPart:
    """The rows of the server's table that a party's upload fills. rows: int64 (b,).

    They are those of its `step`-th activation, or of Request number `request`. Step 0 is the whole
    table, at θ_m^0.
    """

    step: int
    request: int
    rows: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Embed:
    """Party → wire: embeddings that were charged, made with θ_m of iteration `iteration`.

    At the server it becomes an `Update`. released: None where the server has these rows' embeddings
    already and they cannot have changed (a frozen θ_m, released once).
    """

    edge: str
    iteration: int
    part: UploadPart
    released: ReleasedEmbedding | None
    spent: History
    charged: Charged


@dataclass(frozen=True, slots=True, eq=False)
class Roster:
    """Server → party: the names of all rows (datasets/alignment.py).

    The first `records` are trained on.
    """

    names: NameHashes
    records: int


@dataclass(frozen=True, slots=True, eq=False)
class Feedback:
    """Server → party: the answer to its `step`, ∇_h ℓ (b, width) of its batch's mean loss.

    It is of iteration k. gradient: None if the party is to go on without one (after the table, and
    where θ_m is frozen).
    """

    iteration: int
    step: int
    gradient: Tensor | None


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """Server → party: fresh embeddings of `rows` (int64) are wanted.

    The server's are too old, or missing.
    """

    number: int
    rows: Tensor
