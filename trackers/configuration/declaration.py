"""One option: what it is called, what it takes, and values given to it."""

from __future__ import annotations

import dataclasses
import difflib
import operator
import os
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from trackers.errors import ConfigError, quoted, shortened
from trackers.formats.word_list import joined

BOOLEANS = {
    "y": True, "yes": True, "1": True, "true": True, "on": True,
    "n": False, "no": False, "0": False, "false": False, "off": False,
}  # fmt: skip
"""Spellings of a bool in the environment and on the command line; in files it is y or n."""

PROGRAMS = frozenset({"TRACKER_ALERT_TO", "TRACKER_PYTHON"})
"""Options that name programs: files that nobody named, of the directory that somebody happens to be in, can't."""
ADDRESSES = ("TRACKER_ALERT_SMTP", "MLFLOW_TRACKING_URI", "TRACKIO_SERVER_URL")
DIRECTORIES = (
    "BENCHMARK_DIR", "CSV_DIR", "JSON_DIR", "TRACKER_FORK_FROM",
    "PROGRESS_DIR", "TENSORBOARD_DIR", "TRACKER_DIR", "TRACKER_LAKE",
    "TRACKER_PROFILE_DIR", "TRACKER_SAVE_CONFIG_FILEPATH", "TRACKER_STORE_DIR", "TRACKER_TENSOR_INSPECT",
    "TRACKER_TENSOR_INSPECT_DIR", "WANDB_DIR",
)  # fmt: skip
LISTENING = ("TRACKER_NODES", "TRACKER_NODES_ADDRESS", "TRACKER_NODES_TLS")
OPENING: dict[str, tuple[str | bool, ...]] = {
    "TRACKER_SHARE": ("owner",), "TRACKER_PRIVATE": ("y", True), "TRACKER_INLINE": ("n", False), "WANDB_ENTITY": ("",),
    "TRACKER_DATA": ("",),
}  # fmt: skip
"""What decides who gets a run's data (inside training, the umask does), and whose contents it reads, by patterns that
links lead astray: with the values that show nothing to others."""
INSTRUCTIONS = frozenset((*PROGRAMS, *ADDRESSES, *DIRECTORIES, *LISTENING, "TRACKER_SHARE"))
"""Options that make a process run, contact, hear or write something, or let others read it: they count where the
reader gave them."""


def is_directory(symbol: str) -> bool:
    """Whether an option names directories: of a plug-in's, one that ends so."""
    return symbol in DIRECTORIES or symbol.endswith("_DIR")


_LANGUAGES = frozenset({"TRACKER_ALERTS", "TRACKER_ALERT_TO", "TRACKER_ALERT_SMTP", "TRACKER_GPU_DETAIL"})
"""Options with a language of their own (:mod:`trackers.alerts`, :mod:`trackers.metrics.gpu_details`)."""
_LISTS = frozenset({"TRACKER", "TRACKER_TAGS"})
_BASES = {"int": 10, "hex": 16}
_INT = re.compile(r"-?[0-9]+")
_HEX = re.compile(r"0[xX][0-9a-fA-F]+")

_PATTERNS: dict[str, tuple[re.Pattern[str], str]] = {
    "BASELINE_RUN_ID": (re.compile(r"[^/\s]+/[^/\s]+/[^/\s]+"), "entity/project/run_id"),
    "TRACKER_RUN_ID": (
        re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"),
        'up to 128 letters, digits, ".", "_" and "-", the first a letter, digit or "_"',
    ),
    "TRACKER_RESUME": (re.compile(r"allow|must|never|auto"), "allow, must, never or auto"),
    "TRACKER_RANK": (re.compile(r"[0-9]+|last"), 'a rank\'s number or "last"'),
    "TRACKER_PYTHON": (
        re.compile(r"[\w.-]+=[^,=]+(?:,\s*[\w.-]+=[^,=]+)*"),
        "tracker=/path/to/python, separated by commas",
    ),
}
"""What a string that isn't empty must look like, where Kconfig can't say it, and the same in words."""


class Assignment(NamedTuple):
    """One value given to one option. value: as Kconfig writes it, strings without quotes and escapes."""

    symbol: str
    value: str
    source: str

    @property
    def from_file(self) -> bool:
        """Whether a file gave it: the source ends with a line's number."""
        return self.source.rpartition(":")[2].isdecimal()


@dataclasses.dataclass(frozen=True)
class Declaration:
    """One option as the Kconfig file declares it.

    kind: bool, int, hex or string. menu: the menu it stands in. choices: the only values, of an option that is a
    choice. limits: least and largest number. depends: its dependency as Kconfig writes it, or "". plugin: which one
    declares it, or "".
    """

    symbol: str
    kind: str
    prompt: str
    help: str
    menu: str
    default: bool | int | str
    choices: tuple[str, ...] = ()
    limits: tuple[int, int] | None = None
    depends: str = ""
    plugin: str = ""

    @property
    def instructs(self) -> bool:
        """Whether it may make a process run, contact, hear or write something; of a plug-in's options each text may,
        but for a level of logging."""
        text = self.kind == "string" and not self.symbol.endswith("_LEVEL")
        return self.symbol in INSTRUCTIONS or (bool(self.plugin) and text)

    @property
    def needs_trust(self) -> bool:
        """Whether a file that merely lies in a directory gives it only values that harm nobody."""
        return self.instructs or self.symbol in OPENING

    @property
    def flag(self) -> str:
        """The command-line flag: ``--tracker-run-name``, ``--tracker-wandb-entity`` of ``WANDB_ENTITY``."""
        name = self.symbol.lower().replace("_", "-")
        return f"--{name}" if name == "tracker" or name.startswith("tracker-") else f"--tracker-{name}"

    @property
    def attribute(self) -> str:
        """The flag's name in a parsed namespace."""
        return self.flag.removeprefix("--").replace("-", "_")

    def text(self, value: Any, source: str) -> str:
        """A value from ``init``, a flag or the environment as Kconfig writes it.

        Raises:
            ConfigError: it has the wrong type.
        """
        if self.kind == "bool":
            known = value if isinstance(value, bool) else BOOLEANS.get(str(value).strip().lower())
            if known is None:
                raise ConfigError(f"{source}: {self.symbol} is y or n, not {quoted(value)}")
            return "y" if known else "n"
        if self.kind in _BASES and not isinstance(value, str):
            return self._number_text(value, source)
        if isinstance(value, str):
            exact = _rejoin_utf8(str.__str__(value))  # Kconfig's library takes no subclass, such as NumPy's
            return exact if self.kind == "string" else exact.strip()
        if isinstance(value, os.PathLike):
            return _rejoin_utf8(str(os.fspath(value)))
        if self.symbol in _LISTS and isinstance(value, (list, tuple, set, frozenset)):
            items = value if isinstance(value, (list, tuple)) else sorted(value)
            return _rejoin_utf8(joined(items) or "")
        raise ConfigError(f"{source}: {self.symbol} is text, not {type(value).__name__} {quoted(value)}")

    def _number_text(self, value: Any, source: str) -> str:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        try:
            if isinstance(value, bool):
                raise TypeError
            number = operator.index(value)
        except TypeError:
            raise ConfigError(f"{source}: {self.symbol} is a whole number, not {quoted(value)}") from None
        return hex(number) if self.kind == "hex" else str(number)

    def parse(self, text: str) -> bool | int | str:
        """A value as Kconfig writes it, as Python's bool, int or str."""
        if self.kind == "bool":
            return text == "y"
        return int(text, _BASES[self.kind]) if self.kind in _BASES else text

    def check(self, text: str, source: str) -> None:
        """See whether the option can take a value, written as Kconfig does.

        Raises:
            ConfigError: it can't; the message says what it takes.
        """
        if self.choices and text not in self.choices:
            near = difflib.get_close_matches(text, self.choices, n=1)
            hint = f": did you mean {near[0]}?" if near else ""
            known = f"{', '.join(self.choices[:-1])} or {self.choices[-1]}"
            raise ConfigError(f"{source}: {self.symbol} is {known}, not {quoted(text)}{hint}")
        if self.kind == "bool" and text not in ("y", "n"):
            raise ConfigError(f"{source}: {self.symbol} is y or n, not {quoted(text)}")
        if self.kind in _BASES:
            self._check_number(text, source)
        if self.kind == "string":
            self._check_text(text, source)

    def _check_number(self, text: str, source: str) -> None:
        pattern, words = (_INT, "a whole number") if self.kind == "int" else (_HEX, "a number like 0x1f")
        if pattern.fullmatch(text) is None:
            raise ConfigError(f"{source}: {self.symbol} is {words}, not {quoted(text)}")
        # Python refuses to convert digits by the thousand; no limit is that long.
        number = self.parse(text) if len(text) < 100 else sys.maxsize * (-1 if text.startswith("-") else 1)
        if self.limits and not self.limits[0] <= int(number) <= self.limits[1]:
            raise ConfigError(f"{source}: {self.symbol} is {self.limits[0]} to {self.limits[1]}, not {shortened(text)}")

    def _check_text(self, text: str, source: str) -> None:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{source}: {self.symbol} isn't valid UTF-8: {quoted(text)}") from None
        if self.symbol == "TRACKER" and not text.strip(", "):
            raise ConfigError(f'{source}: TRACKER names no tracker: write "none" to track nothing')
        if text and self.symbol in _LANGUAGES:
            from trackers.alerts import destinations, rules
            from trackers.metrics import gpu_details

            read: dict[str, Callable[[str], object]] = {
                "TRACKER_ALERTS": rules.parse, "TRACKER_ALERT_TO": destinations.parse,
                "TRACKER_ALERT_SMTP": destinations.mail_server, "TRACKER_GPU_DETAIL": gpu_details.parse,
            }  # fmt: skip
            try:
                read[self.symbol](text)
            except ValueError as error:
                raise ConfigError(f"{source}: {self.symbol}: {error}") from None
        pattern, words = _PATTERNS.get(self.symbol, (None, ""))
        if text and pattern is not None and pattern.fullmatch(text) is None:
            raise ConfigError(f"{source}: {self.symbol} is {words}, not {quoted(text)}")


def _rejoin_utf8(text: str) -> str:
    """Text that Python decoded with surrogate escapes, as in an ASCII locale, decoded as UTF-8; any other as it is."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        return text
