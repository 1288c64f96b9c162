"""Whether an edge works by this run's definition: the same data schema, dealing, model and code."""

from __future__ import annotations

import json
from typing import Any

from tacit.config.fingerprint import first_difference
from tacit.digests import canonical
from tacit.errors import WireError
from tacit.protocol import wire
from tacit.protocol._pb import wire_pb2 as pb

_MOST = 1 << 18  # characters of a definition


class DefinitionCheck:
    """The check of a Hello's definition against the run's own. Nothing is computed with it."""

    def __init__(self, agreed: dict[str, Any]) -> None:
        """agreed: what all who take part must agree on, as `RunFile.agreed` has it."""
        self.text = canonical(agreed)
        self._agreed = json.loads(self.text)

    def check(self, meta: pb.Meta) -> None:
        """Raise WireError for a Hello with another definition: "definition: KEY=THEIRS, here OURS".

        One without any is refused, too: every participant states what it trains.
        """
        theirs = meta.hello.definition
        if not meta.HasField("hello") or theirs == self.text:
            return
        if theirs:
            reason = self._difference(theirs)
        else:
            reason = "the Hello has none"
        raise WireError("definition", wire.printable(reason, wire.MAX_REASON - 20))

    def _difference(self, theirs: str) -> str:
        try:
            if len(theirs) <= _MOST:
                content = json.loads(theirs)
            else:
                content = None
            difference = first_difference(content, self._agreed)
        except (ValueError, RecursionError):
            difference = None
        return difference or "cannot be read"
