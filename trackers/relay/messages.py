"""What the relay's processes have to say to the user: one line each, in a file that training prints from."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from pathlib import Path

import msgspec


class Message(msgspec.Struct, omit_defaults=True):
    """text: one line. level: info or warning. source: the tracker, or "" for the relay itself."""

    time: float
    text: str
    level: str = "warning"
    source: str = ""


class Messages:
    """Appends to the file and, where asked, to this process's stderr. Each distinct text is said once."""

    def __init__(self, path: Path, *, echo: bool = False) -> None:
        self._path = path
        self._echo = echo
        self._said: set[tuple[str, str]] = set()

    def say(self, text: str, *, source: str = "", level: str = "warning") -> None:
        """Say something once. Never raises."""
        line = one_line(text)
        if (source, line) in self._said:
            return
        if len(self._said) < 10_000:
            self._said.add((source, line))
        message = Message(time.time(), line, level, source)
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.write(fd, msgspec.json.encode(message) + b"\n")
            finally:
                os.close(fd)
        except OSError:
            pass
        if self._echo:
            show(message)


class MessageReader:
    """Reads messages as they come, from where the file ended when the reader was made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._said: set[tuple[str, str]] = set()
        try:
            self._offset = path.stat().st_size
        except OSError:
            self._offset = 0

    def read(self) -> list[Message]:
        """New messages whose text wasn't read before. Never raises."""
        found = []
        try:
            if self._path.stat().st_size == self._offset:
                return []
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                block = file.read()
        except OSError:
            return []
        complete = block.rfind(b"\n") + 1
        self._offset += complete
        for line in block[:complete].splitlines():
            try:
                message = msgspec.json.decode(line, type=Message)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            if (message.source, message.text) not in self._said:
                self._said.add((message.source, message.text))
                found.append(message)
        return found


def show(message: Message) -> None:
    """Print a message on stderr as ``trackers: mlflow: no answer …``. A closed stderr is no error."""
    source = f"{message.source}: " if message.source and not message.text.startswith(message.source) else ""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(f"trackers: {source}{message.text}", file=sys.stderr, flush=True)


def one_line(text: str, limit: int = 600) -> str:
    """Text as one printable line: no line breaks, no terminal escapes."""
    flat = " ".join(text.split())
    flat = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in flat)
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


class MessageHandler(logging.Handler):
    """Sends what backends log at WARNING and above to the user; everything goes to the relay's log as well."""

    def __init__(self, messages: Messages, source: str) -> None:
        super().__init__(logging.WARNING)
        self._messages = messages
        self._source = source

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.say(record.getMessage(), source=self._source)
