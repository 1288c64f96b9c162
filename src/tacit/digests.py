"""SHA-256 as text, and canonical JSON."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]  # in hexadecimal


def canonical(content: object) -> str:
    """Return the canonical JSON text of `content`.

    Its keys are sorted, it has no spaces, and floats have the fewest digits that give them back.
    """
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
