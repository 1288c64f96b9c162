"""The owner is asked about one offer at a time, and only an answer to it counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tacit_services.member.look_record import record_in
from tacit_services.member.member_state import MemberState
from tacit_services.member.owner_terminal import OwnerTerminal
from tacit_services.member.run_diary import RunDiary

from tests.unit.member.test_member_loop import offer
from tests.unit.member.test_withdrawing import come


class Owner:
    """Somebody who types these lines."""

    def __init__(self, folder: Path, *lines: str) -> None:
        self.state = MemberState(folder)
        self.lines = list(lines)
        self.prompts: list[str] = []
        self.seen: list[str] = []
        self.elsewhere = False
        self.meanwhile: str | None = None  # how the run ends while the owner thinks
        self.terminal = OwnerTerminal(self.state, folder / "home", self.seen.append, self._read)

    def _read(self, prompt: str) -> str:
        self.prompts.append(prompt)
        if self.elsewhere:
            with self.state.answering() as answers:
                answers.record(offer("retina"), "declined")
        if self.meanwhile is not None:
            RunDiary(offer("retina").fingerprint, state=self.meanwhile).keep(
                self.state.run("retina")
            )
        return self.lines.pop(0)

    def answers(self) -> list[str]:
        return [consent.answer for consent in self.state.consents().all()]

    def ask(self) -> None:
        asked = offer("retina")
        come(self.state, asked)
        record = record_in(self.state.run("retina"))
        assert record is not None
        self.terminal.ask_now(asked, record)


@pytest.mark.parametrize(
    ("lines", "answers"),
    [
        (["yes"], ["accepted"]),
        (["N"], ["declined"]),
        (["hm", "", "yes"], []),
        (["hm", "Yes "], ["accepted"]),
        (["later"], []),
        ([""], []),
    ],
)
def test_a_word_that_is_none_is_asked_for_again(
    tmp_path: Path, lines: list[str], answers: list[str]
) -> None:
    owner = Owner(tmp_path, *lines)
    owner.ask()
    assert owner.answers() == answers
    assert all("'retina'" in prompt for prompt in owner.prompts)
    assert owner.seen[0].startswith(f"{offer('retina').fingerprint} asks")


def test_an_answer_that_was_given_elsewhere_stands(tmp_path: Path) -> None:
    owner = Owner(tmp_path, "yes")
    owner.elsewhere = True
    owner.ask()
    assert owner.answers() == ["declined"]
    owner.ask()
    assert len(owner.prompts) == 1  # it is not asked again


def test_a_run_that_is_over_is_asked_about_no_more(tmp_path: Path) -> None:
    owner = Owner(tmp_path, "yes")
    owner.meanwhile = "stopped"
    owner.ask()
    assert owner.answers() == []
    assert owner.seen[-1] == "run retina: stopped meanwhile, so this answer is dropped"
    owner.ask()
    assert len(owner.prompts) == 1
