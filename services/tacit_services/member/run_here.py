"""A run with a member's own rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tacit.config import RunFile
from tacit.config.site import Site
from tacit.errors import ConfigError
from tacit_services.member.member_state import MemberState
from tacit_services.offers.offer_reading import definition_at_member, read_offer
from tacit_services.offers.submission import FILES


def site_of(state: MemberState) -> Site:
    """Return a member's own part of every run. Raises ConfigError where it is no member."""
    membership = state.membership()
    if membership is None:
        raise ConfigError(f"--state {state.folder}: is of no member")
    here = Path(membership.here)
    site = Site(membership.number, here, membership.rows, membership.dataset)
    if membership.published is not None:
        return replace(site, data=Path(membership.data), published=True)
    return site.of(membership.data, here)


def definition_of(state: MemberState, run: str) -> RunFile:
    """Return the run file of the offer in a run's folder, with this member's rows.

    Raises ConfigError, DataError, WireError.
    """
    folder = state.run(run)
    return definition_at_member(read_offer(folder), folder / FILES, site_of(state))
