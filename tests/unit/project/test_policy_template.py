"""The policy that `tacit new` writes: valid as it is, and with every line that is commented out."""

from __future__ import annotations

import re

from tacit_services.project.templates import POLICY

from tacit.privacy import policy

COMMENTED = re.compile(r"^# (?=[a-z_]+ = )", re.MULTILINE)


def test_the_template_forbids_what_it_says_and_nothing_of_a_federation() -> None:
    written = policy.parse(POLICY, "policy.toml")
    assert written.max_epsilon == 4.0
    assert written.idle_alone == ()


def test_every_key_of_a_federation_stands_in_it_ready_to_be_used() -> None:
    uncommented, count = COMMENTED.subn("", POLICY)
    owners = policy.parse(uncommented, "policy.toml")
    assert count == len(policy.FEDERATION) + 3
    assert set(owners.idle_alone) == set(policy.FEDERATION)
    assert owners.questions == ("count", "missing")
    assert (owners.lifetime_epsilon, owners.hours) == (4.0, "20:00-06:00")


def test_what_is_commented_out_as_a_default_is_the_default() -> None:
    owners = policy.parse(COMMENTED.sub("", POLICY), "policy.toml")
    default = policy.Policy()
    for key in ("accept", "researchers", "code", "lifetime_delta"):
        assert getattr(owners, key) == getattr(default, key)
