"""The process of a member at work in one run: an edge, whose consent and ledger are the member's.

It reads the offer that was consented to from the member's folder, checks again that it is that one
and that the consent holds, and trains as `tacit edge` does. What it releases is charged to the
ledger that all workers of the data share.
"""

from __future__ import annotations

import logging

log = logging.getLogger("tacit.edge")
