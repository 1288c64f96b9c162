"""The layout since what an edge says and what a server says have a module each."""

from __future__ import annotations

from golden.adapters.rooms import *  # noqa: F403
from golden.adapters.third import Simulator, simulate
from tacit.protocol import wire as _wire
from tacit.protocol import wire_down, wire_up


class wire:  # noqa: N801  (golden's name of a module)
    """What golden uses of the codec of an edge's and a server's messages."""

    up = staticmethod(wire_up.up)
    down = staticmethod(wire_down.down)
    announcement = staticmethod(wire_down.announcement)
    encode = staticmethod(_wire.encode)
    split = staticmethod(_wire.split)
    question = staticmethod(_wire.question)
