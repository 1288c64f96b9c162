"""The owner at the terminal of `tacit join`, asked about one offer after the other.

The questions have a thread of their own: a member goes on working while its owner thinks, and the
owner may answer elsewhere meanwhile. What was typed before a question is no answer to it.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tacit_services.member.answering import CostsChanged, OwnerAnswers
from tacit_services.member.consent import AnswerWord
from tacit_services.member.look_record import LookRecord
from tacit_services.member.member_state import MemberState
from tacit_services.member.run_diary import diary_of
from tacit_services.member.screen_text import text_of
from tacit_services.offers.offer import Offer

_WORDS: dict[str, AnswerWord] = {
    "y": "accepted",
    "yes": "accepted",
    "n": "declined",
    "no": "declined",
}
_LATER = ("", "l", "later")


class OwnerTerminal:
    """Asks about offers, and enters what the owner answers."""

    def __init__(
        self,
        state: MemberState,
        home: Path,
        say: Callable[[str], None],
        read: Callable[[str], str] = input,
    ) -> None:
        """home: the user's data folder, where the ledger is. say: prints at the terminal.

        read: prints a prompt, returns a line or raises EOFError.
        """
        self._state = state
        self._answers = OwnerAnswers(state, home)
        self._say = say
        self._read = read
        self._waiting: queue.Queue[tuple[Offer, LookRecord]] = queue.Queue()
        self._thread = threading.Thread(target=self._ask_all, name="owner", daemon=True)

    def ask(self, offer: Offer, record: LookRecord) -> None:
        """Ask about an offer, after those that wait already; returns at once."""
        self._waiting.put((offer, record))
        if not self._thread.is_alive():
            self._thread.start()

    def _ask_all(self) -> None:
        while True:
            try:
                self.ask_now(*self._waiting.get())
            except EOFError:  # the terminal has gone: `tacit offers` answers
                return

    def ask_now(self, offer: Offer, record: LookRecord) -> None:
        """Show an offer and enter the answer.

        Nothing is asked, and no answer is entered, where it was answered elsewhere meanwhile or the
        run is over.
        """
        if self._state.consents().to(offer) is not None or self._end_of(offer) is not None:
            return
        while (word := self._answer_to(offer)) is not None:
            try:
                self._enter(offer, record, word)
                return
            except CostsChanged as error:
                self._say(error.words)

    def _answer_to(self, offer: Offer) -> AnswerWord | None:
        """Show an offer as it is now, and return the answer; None: later."""
        self._say(text_of(self._answers.show(offer.run).sections))
        _drop_typed_ahead()
        word = ""
        while word not in _WORDS:
            word = self._read(f"Take part in {offer.run!r}? yes, no or later: ").strip().lower()
            if word in _LATER:
                self._say(f"later: tacit offers accept {offer.run}, or decline")
                return None
        return _WORDS[word]

    def _enter(self, offer: Offer, record: LookRecord, word: AnswerWord) -> None:
        """Enter an answer, which is dropped where it comes too late. Raises CostsChanged."""
        with self._state.answering() as answers:
            earlier = answers.to(offer)
            if earlier is not None:
                self._say(f"run {offer.run}: was answered elsewhere, so this answer is dropped")
            elif (end := self._end_of(offer)) is not None:
                self._say(f"run {offer.run}: {end} meanwhile, so this answer is dropped")
            elif word == "accepted":
                self._answers.enter(answers, offer, record)
            else:
                answers.record(offer, word)

    def _end_of(self, offer: Offer) -> str | None:
        """Return how an offer's run ended; None: it is not over. Raises ConfigError."""
        return diary_of(self._state.run(offer.run), offer.fingerprint).state


def _drop_typed_ahead() -> None:
    """Forget what was typed before the question."""
    if not sys.stdin.isatty():
        return
    if sys.platform == "win32":
        import msvcrt

        while msvcrt.kbhit():
            msvcrt.getwch()
    else:
        import termios

        termios.tcflush(sys.stdin, termios.TCIFLUSH)
