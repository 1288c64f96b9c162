"""The only doors out: charge, compute, add noise, seal."""

from tacit.privacy.plan import PRIVATE, Mechanism, NoiseAt, Paper, Plan, Private
from tacit.privacy.release.release import (
    Released,
    Releaser,
    Steps,
    release_steps_together,
    release_together,
)

__all__ = [
    "PRIVATE",
    "Mechanism",
    "NoiseAt",
    "Paper",
    "Plan",
    "Private",
    "Released",
    "Releaser",
    "Steps",
    "release_steps_together",
    "release_together",
]
