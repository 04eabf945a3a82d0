"""Messages of the relay's processes to the user: one line each, in a file that the training process prints."""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from pathlib import Path
from types import TracebackType

import msgspec

from trackers.errors import UNDECODABLE
from trackers.records import escaped
from trackers.support import confined
from trackers.support.interruption import pass_on, suppress
from trackers.support.redaction import mask_source
from trackers.support.terminal import one_line, write_line

RECOVERED = "delivering again"
"""Suffix of a message that a source has recovered; its earlier messages may be printed again afterwards."""
MOST_TIMES = 10
"""Maximum number of times that one text is printed; ``trackers ls`` shows the current state."""
BLOCK_BYTES = 16 * 1024 * 1024
"""Maximum number of bytes read at a time."""


class Message(msgspec.Struct, omit_defaults=True):
    """text: one line. level: info or warning. source: the tracker, or "" for the relay itself."""

    time: float
    text: str
    level: str = "warning"
    source: str = ""


class PrintedTexts:
    """Texts printed so far. A text is printed once, and again if its source has recovered in between."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], int] = {}
        self._recent: set[tuple[str, str]] = set()

    def new(self, source: str, line: str) -> bool:
        """True if this line is to be printed; it counts as printed from then on."""
        if (source, line) in self._recent or self._times.get((source, line), 0) >= MOST_TIMES:
            return False
        recovered = line.endswith(RECOVERED)
        self._recent = {key for key in self._recent if key[0] != source or key[1].endswith(RECOVERED) == recovered}
        if len(self._times) < 10_000:  # a client whose every failure has other words must not fill the memory
            self._times[source, line] = self._times.get((source, line), 0) + 1
            self._recent.add((source, line))
        return True


class Messages:
    """Appends to the file and, where asked, to this process's stderr. Each text is said once; see PrintedTexts."""

    def __init__(self, path: Path, *, echo: bool = False) -> None:
        self._path = path
        self._echo = echo
        self._printed = PrintedTexts()

    def say(self, text: str, *, source: str = "", level: str = "warning") -> None:
        """Write a message unless its text was written before. Never raises."""
        line = printable(escaped(text))
        if not self._printed.new(source, line):
            return
        message = Message(time.time(), line, level, source)
        with suppress(OSError):
            fd = confined.open_fd(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                os.write(fd, msgspec.json.encode(message) + b"\n")
            finally:
                os.close(fd)
        if self._echo:
            show(message)


class MessageReader:
    """Reads messages as they come, from where the file ended when the reader was made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._printed = PrintedTexts()
        try:
            self._offset = path.stat().st_size
        except OSError as error:
            pass_on(error)
            self._offset = 0

    def read(self) -> list[Message]:
        """New messages, without those whose text was read before; see PrintedTexts. Never raises."""
        messages = []
        try:
            if self._path.stat().st_size == self._offset:
                return []
            with confined.open_file(self._path) as file:
                file.seek(self._offset)
                block = file.read(BLOCK_BYTES)
        except OSError as error:
            pass_on(error)
            return []
        complete = block.rfind(b"\n") + 1
        self._offset += complete if complete or len(block) < BLOCK_BYTES else len(block)  # no message is so long
        for line in block[:complete].splitlines():
            try:
                message = msgspec.json.decode(line, type=Message)
            except UNDECODABLE:
                continue
            if self._printed.new(message.source, message.text):
                messages.append(message)
        return messages


def show(message: Message) -> None:
    """Print a message on stderr as ``trackers: mlflow: no answer …``. A closed stderr is no error."""
    source = f"{one_line(message.source)}: " if message.source and not message.text.startswith(message.source) else ""
    with suppress(OSError, ValueError, AttributeError):  # AttributeError: sys.stderr may be None
        write_line(f"trackers: {source}{message.text}", sys.stderr)


def printable(text: str) -> str:
    """A text as one printable line, without secrets, which errors of clients often quote."""
    return one_line(mask_source(text))


def show_once(text: str, already: set[str], about: str = "") -> None:
    """Print a line on stderr unless it, or another about the same, is in ``shown``. Never raises.

    Args:
        about: what counts as the same, where the text differs.
    """
    line = printable(text)
    if (about or line) in already or len(already) >= 1000:
        return
    already.add(about or line)
    with suppress(Exception):
        show(Message(time.time(), line))


class Masking(logging.Formatter):
    """Formats for ``relay.log``: clients log addresses and headers as they are."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's lines, without secrets."""
        return mask_source(super().format(record))


def print_masked(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """An excepthook: the traceback, without secrets."""
    with suppress(OSError, ValueError, AttributeError):  # AttributeError: sys.stderr may be None
        sys.stderr.write(mask_source("".join(traceback.format_exception(kind, error, trace))))


class MessageHandler(logging.Handler):
    """Sends what backends log at WARNING and above to the user; everything goes to the relay's log as well."""

    def __init__(self, messages: Messages, source: str) -> None:
        super().__init__(logging.WARNING)
        self._messages = messages
        self._source = source

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.say(record.getMessage(), source=self._source)
