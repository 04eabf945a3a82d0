"""The text of a session's logs as it is composed: levels, blocks, and what is held back until the head is known."""

from __future__ import annotations

import logging

import msgspec

from trackers.backends.session.log_lines import main_line, process_line
from trackers.backends.session.settings import SessionSettings

MAIN, MULTIGPU, PERFORMANCE = "main", "multigpu", "performance"

UNKNOWN = "�-?"
"""Stands in a line that is held back for the word that only the head knows."""


class PagePosition(msgspec.Struct):
    """Position in the text. waiting: the head isn't written yet, and ``held`` is what follows it, each with its log.

    block: the main log ends with lines that stand together, behind which an empty line belongs.
    """

    waiting: bool = True
    held: list[tuple[str, str]] = []
    block: bool = False


class Pages:
    """New text, by log.

    Args:
        place: where the text stands; it is changed.
    """

    def __init__(self, place: PagePosition, settings: SessionSettings) -> None:
        self.place = place
        self.texts: dict[str, list[str]] = {MAIN: [], MULTIGPU: [], PERFORMANCE: []}
        self._levels = dict.fromkeys((MAIN, PERFORMANCE), settings.training_level)
        self._levels[MULTIGPU] = settings.multigpu_level
        self._ends_with_block = False

    def say(self, log: str, time: float, level: int, text: str) -> None:
        """A line with its time."""
        self.put(log, level, (main_line if log == MAIN else process_line)(time, level, text))

    def put(self, log: str, level: int, *lines: str) -> None:
        """Lines as they are, if their level is one that is written."""
        if level < self._levels[log]:
            return
        if log == MAIN:
            self.part()
        for line in lines:
            self._add(log, line)

    def block(self, lines: list[str]) -> None:
        """Lines of the main log that stand together, with an empty line before and behind them."""
        self.blank()
        self.put(MAIN, logging.INFO, *lines)
        self.place.block = True

    def blank(self) -> None:
        """An empty line in the main log, but no second one."""
        self.place.block = True
        self.part()

    def part(self) -> None:
        """The empty line behind a block, if the text ends with one."""
        if self.place.block:
            self.place.block = False
            if self._levels[MAIN] <= logging.INFO:
                self._add(MAIN, "")

    def hold(self) -> None:
        """From here on, keep what is written for later: a head comes before it."""
        self.place.waiting = True

    def release(self) -> list[tuple[str, str]]:
        """Write to the logs again. What was held back is the caller's to give to ``follow``, behind the head."""
        held, self.place.held = self.place.held, []
        self._ends_with_block, self.place.block = self.place.block, False
        self.place.waiting = False
        return held

    def follow(self, held: list[tuple[str, str]], word: str) -> None:
        """Write what was held back, with the word for :data:`UNKNOWN`."""
        first = next((text for log, text in held if log == MAIN), None)
        if first is not None:
            if first != "\n":
                self.part()
            self.place.block = self._ends_with_block
        for log, text in held:
            self.texts[log].append(text.replace(UNKNOWN, word, 1) if log == MULTIGPU else text)

    def _add(self, log: str, line: str) -> None:
        if self.place.waiting and log != PERFORMANCE:
            self.place.held.append((log, f"{line}\n"))
        else:
            self.texts[log].append(f"{line}\n")
