"""`tacit offers`: what an owner reads and answers at a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tacit_services.member.answering import OwnerAnswers
from tacit_services.member.screen_text import text_of


class OfferCommands:
    """The commands about one offer; each returns what to print."""

    def __init__(self, answers: OwnerAnswers) -> None:
        """answers: the owner's."""
        self._answers = answers

    @property
    def actions(self) -> Mapping[str, Callable[[str], str]]:
        """What each command does, by its name. Raises ConfigError, PrivacyError."""
        return {
            "show": self._show,
            "accept": self._accept,
            "decline": self._decline,
            "withdraw": self._withdraw,
        }

    def _show(self, run: str) -> str:
        now = self._answers.show(run)
        text = text_of(now.sections)
        if not now.actions:
            return text
        commands = [_COMMANDS[action].format(run) for action in now.actions]
        return f"{text}\n{chr(10).join(commands)}"

    def _accept(self, run: str) -> str:
        self._answers.accept(run)
        return (
            f"run {run}: accepted; `tacit offers withdraw {run}` ends it at any time. What has "
            "left by then stays with the host"
        )

    def confirm(self, run: str) -> str:
        """Confirm the key of an offer's researcher. Raises ConfigError."""
        name, key = self._answers.confirm(run)
        return (
            f"run {run}: {name!r} is known by the key {key} now; the offer is looked at anew, and "
            "waits for your policy's answer, or yours"
        )

    def _decline(self, run: str) -> str:
        self._answers.decline(run)
        return f"run {run}: declined"

    def _withdraw(self, run: str) -> str:
        if self._answers.withdraw(run):
            return (
                f"run {run}: withdrawn; nothing leaves from now on. What was released stays "
                "released"
            )
        return (
            f"run {run}: withdrawn; the process that works on it has not ended yet, and nothing "
            "more is begun"
        )


_COMMANDS = {
    "accept": "tacit offers accept {}",
    "decline": "tacit offers decline {}",
    "withdraw": "tacit offers withdraw {}",
    "confirm": "tacit offers accept {} --new-key",
}
