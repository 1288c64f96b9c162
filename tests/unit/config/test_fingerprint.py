"""What a run is called: by what differs from the defaults, so that a new key renames nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import Field

from tacit.config import RunFile, fingerprint
from tacit.config.sections import Away, Delay, Network, Privacy, Section
from tacit.digests import canonical
from tests.conftest import ROOT

SMALL: dict[str, Any] = {
    "run": {"updates": 100},
    "data": {"dataset": "digits"},
    "model": {"name": "logistic"},
    "algorithm": {"name": "mapa"},
}
KEPT = [
    json.loads(line)
    for line in (ROOT / "tests" / "kept" / "0.2" / "fingerprints.jsonl").read_text().splitlines()
]


def run(**sections: dict[str, Any]) -> RunFile:
    return RunFile.model_validate(SMALL | sections)


class TestDifferences:
    def test_only_what_has_no_default_or_another_value(self) -> None:
        assert fingerprint.differences(run()) == SMALL
        spelt_out = run(privacy={"epsilon": 2.0, "clip": None}, edges={"count": 5, "epsilon": []})
        assert fingerprint.differences(spelt_out) == SMALL
        assert fingerprint.differences(run(privacy={"epsilon": 3.0})) == SMALL | {
            "privacy": {"epsilon": 3.0}
        }

    @pytest.mark.parametrize("stored", KEPT)
    def test_read_as_a_run_file_they_give_the_same_run(self, stored: dict[str, Any]) -> None:
        run_file = RunFile.model_validate(stored["run"])
        different = fingerprint.differences(run_file)
        assert json.loads(canonical(different)) == different
        assert RunFile.model_validate(different) == run_file

    def test_a_section_whose_default_is_not_its_classs_own(self) -> None:
        """Name [network.uplink]: without it an uplink takes no time, with it a second.

        Every named delay takes a second by default.
        """
        run_file = run(network={"uplink": {}, "compute": {}, "away": [{"edge": 1, "leaves": 0.0}]})
        different = fingerprint.differences(run_file)
        assert different["network"] == {"uplink": {}, "away": [{"edge": 1, "leaves": 0.0}]}
        assert RunFile.model_validate(different).network == Network(
            uplink=Delay(), away=(Away(edge=1, leaves=0.0),)
        )

    def test_a_default_that_is_made_is_a_default(self) -> None:
        class Made(Section):
            parts: tuple[int, ...] = Field(default_factory=lambda: (1, 2))

        assert fingerprint.differences(Made()) == fingerprint.differences(Made(parts=(1, 2))) == {}
        assert fingerprint.differences(Made(parts=())) == {"parts": []}


class WithMore(Privacy):
    """[privacy] as a later version might have it."""

    floor: float = 0.5


class Later(RunFile):
    """A run file with one more key, and one more section."""

    privacy: WithMore = WithMore()
    more: WithMore | None = None


class TestFingerprint:
    def test_a_new_key_with_a_default_changes_none(self) -> None:
        for content in (SMALL, SMALL | {"privacy": {"epsilon": 3.0}}):
            assert (
                Later.model_validate(content).fingerprint()
                == RunFile.model_validate(content).fingerprint()
            )

    def test_a_new_key_with_another_value_does(self) -> None:
        other = Later.model_validate(SMALL | {"privacy": {"floor": 1.0}})
        assert other.fingerprint() != run().fingerprint()

    def test_it_is_this_one(self) -> None:
        """Written out: whatever changes it takes every store of a running federation with it."""
        assert (
            run().fingerprint()
            == "01facc00d30cbf74c1e4dc739252d44b45900ebb8df80b499ef8e66c50036054"
        )

    @pytest.mark.parametrize("stored", KEPT)
    def test_is_the_one_that_0_2_gave(self, stored: dict[str, Any]) -> None:
        assert RunFile.model_validate(stored["run"]).fingerprint() == stored["fingerprint"]

    def test_names_of_two_kinds_differ(self) -> None:
        assert fingerprint.name("run", SMALL) != fingerprint.name("point", SMALL)
