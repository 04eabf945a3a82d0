"""The Kconfig tree: which options there are, what values they take, and what they are worth together.

``kconfiglib`` parses the tree and evaluates dependencies and defaults. It is silent about most mistakes, so
every value is checked here before it gets there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import glob
import operator
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trackers.errors import ConfigError

KCONFIG = Path(__file__).resolve().parents[1] / "Kconfig"
"""The file that declares every option."""

PATH_VARIABLE = "TRACKERS_KCONFIG"
"""What another tree sources us by: ``source "$(TRACKERS_KCONFIG)"``; set while such a tree is read."""

BOOLEANS = {
    "y": True, "yes": True, "1": True, "true": True, "on": True,
    "n": False, "no": False, "0": False, "false": False, "off": False,
}  # fmt: skip
"""How a bool is written in the environment and on the command line; in files it is y or n."""

_PREFIXES = ("TRACKER", "WANDB_", "MLFLOW_", "TRACKIO_", "TENSORBOARD_", "JSON_", "CSV_", "BASELINE_")
_LISTS = frozenset({"TRACKER", "TRACKER_TAGS"})
_WHEN_OFF = {"TRACKER": "none", "TRACKER_MODE": "disabled"}
_INT = re.compile(r"-?[0-9]+")
_HEX = re.compile(r"0[xX][0-9a-fA-F]+")
_MAX_SOURCED_FILES = 200

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


class UnknownOption(ConfigError):
    """A symbol that no Kconfig file declares."""


class Assignment(NamedTuple):
    """One value given to one option. value: as Kconfig writes it, strings without quotes and escapes."""

    symbol: str
    value: str
    source: str


@dataclasses.dataclass(frozen=True)
class Declaration:
    """One option as the Kconfig file declares it.

    kind: bool, int, hex or string. choices: the only values, of an option that is a choice. limits: least and
    largest number. depends: its dependency as Kconfig writes it, or "".
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

    @property
    def flag(self) -> str:
        """The command-line flag: ``--tracker-run-name``."""
        return "--" + self.symbol.lower().replace("_", "-")

    def text(self, value: Any, source: str) -> str:
        """A value from ``init``, a flag or the environment as Kconfig writes it.

        Raises:
            ConfigError: it has the wrong type.
        """
        if self.kind == "bool":
            known = value if isinstance(value, bool) else BOOLEANS.get(str(value).strip().lower())
            if known is None:
                raise ConfigError(f"{source}: {self.symbol} is y or n, not {value!r}")
            return "y" if known else "n"
        if self.kind in ("int", "hex") and not isinstance(value, str):
            return self._number_text(value, source)
        if isinstance(value, str):
            return value if self.kind == "string" else value.strip()
        if isinstance(value, os.PathLike):
            return str(os.fspath(value))
        if self.symbol in _LISTS and isinstance(value, (list, tuple, set, frozenset)):
            return ",".join(str(item) for item in (value if isinstance(value, (list, tuple)) else sorted(value)))
        raise ConfigError(f"{source}: {self.symbol} is text, not {type(value).__name__} {value!r}")

    def _number_text(self, value: Any, source: str) -> str:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        try:
            if isinstance(value, bool):
                raise TypeError
            number = operator.index(value)
        except TypeError:
            raise ConfigError(f"{source}: {self.symbol} is a whole number, not {value!r}") from None
        return hex(number) if self.kind == "hex" else str(number)


class Tree:
    """A parsed Kconfig tree with the values given so far.

    Attributes:
        declarations: our options by symbol, in the file's order.
        members: the symbols of choices: ``{"TRACKER_MODE_OFFLINE": ("TRACKER_MODE", "offline")}``.
        kconf: kconfiglib's own tree.

    Args:
        root: the tree's first file; None for ours alone.

    Raises:
        ConfigError: the tree can't be parsed, or lacks some of our options.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or KCONFIG
        self.foreign = self.root != KCONFIG
        ours = _parse(KCONFIG)
        self.members = _members(ours)
        self.declarations = {d.symbol: d for d in _declarations(ours, self.members)}
        self.kconf = _parse(self.root) if self.foreign else ours
        lacking = [name for name in (*self.declarations, *self.members) if not self._defined(name)]
        if lacking:
            raise ConfigError(
                f"{self.root}: {lacking[0]} isn't declared; source trackers' own file: {KCONFIG} (`trackers kconfig`)"
            )

    def _defined(self, name: str) -> bool:
        symbol = self.kconf.syms.get(name)
        return symbol is not None and bool(symbol.nodes)

    def knows(self, name: str) -> bool:
        """Whether the option is ours, in any spelling: a choice's value too is a symbol."""
        return name in self.declarations or name in self.members

    def knows_elsewhere(self, name: str) -> bool:
        """Whether the symbol belongs to the tree that sources ours."""
        return self.foreign and not self.knows(name) and self._defined(name)

    def kind(self, name: str) -> str:
        """bool, int, hex or string."""
        return "bool" if name in self.members else self.declarations[name].kind

    def option(self, name: str) -> str:
        """The option that a symbol speaks of: TRACKER_MODE for TRACKER_MODE_OFFLINE, else the name itself."""
        return self.members[name][0] if name in self.members else name

    def assign(self, assignments: Iterable[Assignment]) -> dict[str, str]:
        """Give values, all of one level: they beat what was given before.

        Returns:
            source by option, for what was given.

        Raises:
            ConfigError: a value is of the wrong type or out of range, a dependency is unmet, or two values of
                one choice are given.
        """
        sources: dict[str, str] = {}
        given: dict[str, Assignment] = {}
        for assignment in assignments:
            if self.knows_elsewhere(assignment.symbol):
                self.kconf.syms[assignment.symbol].set_value(assignment.value)
                continue
            assignment = self._by_option(assignment)
            if assignment.symbol in self.members:  # a choice's value that isn't chosen
                self.kconf.syms[assignment.symbol].set_value(0)
                continue
            earlier = given.get(assignment.symbol)
            if earlier is not None and earlier.value != assignment.value:
                raise ConfigError(
                    f"{assignment.source}: {assignment.symbol} is set to {assignment.value!r}, "
                    f"but {earlier.source} says {earlier.value!r}: keep one"
                )
            self._check(assignment)
            self._set(assignment)
            given[assignment.symbol] = assignment
            sources[assignment.symbol] = assignment.source
        for assignment in given.values():
            self._check_dependency(assignment)
        return sources

    def _by_option(self, assignment: Assignment) -> Assignment:
        if assignment.symbol in self.members and assignment.value == "y":
            option, value = self.members[assignment.symbol]
            return Assignment(option, value, assignment.source)
        return assignment

    def _check(self, assignment: Assignment) -> None:
        name, value, source = assignment
        declaration = self.declarations[name]
        if declaration.choices and value not in declaration.choices:
            hint = _near(value, declaration.choices)
            raise ConfigError(f"{source}: {name} is {_either(declaration.choices)}, not {value!r}{hint}")
        if declaration.kind == "bool" and value not in ("y", "n"):
            raise ConfigError(f"{source}: {name} is y or n, not {value!r}")
        if declaration.kind in ("int", "hex"):
            self._check_number(declaration, value, source)
        if declaration.kind == "string":
            _check_text(name, value, source)

    def _check_number(self, declaration: Declaration, value: str, source: str) -> None:
        pattern, words, base = (_INT, "a whole number", 10) if declaration.kind == "int" else (_HEX, "0x…", 16)
        if pattern.fullmatch(value) is None:
            raise ConfigError(f"{source}: {declaration.symbol} is {words}, not {value!r}")
        # Python refuses to convert digits by the thousand; no limit is that long.
        number = int(value, base) if len(value) < 100 else sys.maxsize * (-1 if value.startswith("-") else 1)
        if declaration.limits and not declaration.limits[0] <= number <= declaration.limits[1]:
            low, high = declaration.limits
            raise ConfigError(f"{source}: {declaration.symbol} is {low} to {high}, not {value}")

    def _set(self, assignment: Assignment) -> None:
        name, value, _ = assignment
        self.kconf.syms[name].set_value(value)
        if self.declarations[name].choices:
            self.kconf.syms[self._member(name, value)].set_value("y")

    def _member(self, option: str, value: str) -> str:
        return next(name for name, chosen in self.members.items() if chosen == (option, value))

    def _check_dependency(self, assignment: Assignment) -> None:
        import kconfiglib

        name, value, source = assignment
        symbol = self.kconf.syms[name]
        if kconfiglib.expr_value(symbol.direct_dep) or (self.kind(name) == "bool" and value == "n"):
            return
        raise ConfigError(
            f"{source}: {name} needs {kconfiglib.expr_str(symbol.direct_dep)}, which isn't so: "
            f"change that too, or leave {name} out"
        )

    def value(self, name: str) -> bool | int | str:
        """An option's value as things stand.

        Where a dependency is unmet, it is what the option is worth when nobody sets it; a tree that sources us
        below a condition that isn't met has switched tracking off.
        """
        import kconfiglib

        symbol, declaration = self.kconf.syms[name], self.declarations[name]
        if declaration.kind == "bool":
            return bool(symbol.tri_value)
        if not kconfiglib.expr_value(symbol.direct_dep):
            return _WHEN_OFF.get(name, declaration.default)
        return _typed(declaration.kind, symbol.str_value)

    def unknown(self, name: str, source: str) -> UnknownOption:
        """The error that names an unknown symbol and the nearest known one."""
        known = (*self.declarations, *self.members)
        near = _near(name, known) or f". Known: {', '.join(self.declarations)}"
        return UnknownOption(f"{source}: unknown option {name}{near}")

    def near(self, name: str) -> bool:
        """Whether an unknown symbol is spelt nearly as one of ours."""
        return bool(difflib.get_close_matches(name, self.declarations, n=1, cutoff=0.8))


def is_prefixed(name: str) -> bool:
    """Whether a symbol begins as ours do: TRACKER, WANDB_, …"""
    return name.startswith(_PREFIXES)


def find_root(environ: Mapping[str, str], cwd: Path) -> Path:
    """The tree that counts here: TRACKER_KCONFIG, else KCONFIG or ./Kconfig if it sources ours, else ours.

    Raises:
        ConfigError: TRACKER_KCONFIG names no file, or a tree without our options.
    """
    named = environ.get("TRACKER_KCONFIG")
    if named:
        root = cwd / named
        if not root.is_file():
            raise ConfigError(f"TRACKER_KCONFIG={named}: no such file")
        if not _sources_ours(root, environ):
            raise ConfigError(f"TRACKER_KCONFIG={named}: doesn't source trackers' options: source \"{KCONFIG}\"")
        return _same(root)
    for candidate in (environ.get("KCONFIG"), "Kconfig"):
        if candidate and (cwd / candidate).is_file() and _sources_ours(cwd / candidate, environ):
            return _same(cwd / candidate)
    return KCONFIG


def _same(root: Path) -> Path:
    return KCONFIG if root.resolve() == KCONFIG else root.resolve()


_SOURCE = re.compile(r'^\s*o?(r?)source\s+"([^"]+)"', re.MULTILINE)
_OURS = re.compile(r"^\s*(?:menu)?config\s+TRACKER\s*$", re.MULTILINE)
_VARIABLE = re.compile(r"\$\((\w+)\)|\$(\w+)")


def _sources_ours(root: Path, environ: Mapping[str, str]) -> bool:
    # Read as text, not parsed: parsing a stranger's tree (a kernel's) would run its $(shell) macros.
    def value(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        return environ.get(name) or (str(KCONFIG) if name == PATH_VARIABLE else "")

    seen: set[str] = set()
    waiting = [str(root)]
    while waiting and len(seen) < _MAX_SOURCED_FILES:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            text = Path(path).read_text("utf-8", errors="replace")
        except OSError:
            continue
        if _OURS.search(text):
            return True
        for relative, target in _SOURCE.findall(text):
            base = os.path.dirname(path) if relative else str(root.parent)
            waiting.extend(glob.glob(os.path.join(base, _VARIABLE.sub(value, target))))
    return False


def _parse(root: Path) -> Any:
    import kconfiglib

    class Kconfig(kconfiglib.Kconfig):  # type: ignore[misc]
        """kconfiglib's class with room for attributes: an editor's way to load a file is replaced (menu.py)."""

    surroundings = _without_functions() if root == KCONFIG else _rooted_at(root)
    try:
        with surroundings:
            kconf = Kconfig(str(root), warn=False, warn_to_stderr=False)
    except (kconfiglib.KconfigError, OSError) as error:
        raise ConfigError(" ".join(str(error).split())) from None
    kconf.config_prefix = "CONFIG_"
    return kconf


@contextlib.contextmanager
def _without_functions() -> Iterator[None]:
    # kconfiglib imports any kconfigfunctions.py it finds on sys.path: a file in the user's directory would run.
    name = os.environ.get("KCONFIG_FUNCTIONS", "kconfigfunctions")
    before = sys.modules.get(name)
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before


@contextlib.contextmanager
def _rooted_at(root: Path) -> Iterator[None]:
    # kconfiglib takes these from the environment only.
    wanted = {"srctree": str(root.parent), PATH_VARIABLE: os.environ.get(PATH_VARIABLE, str(KCONFIG))}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _members(kconf: Any) -> dict[str, tuple[str, str]]:
    """A choice's symbols: TRACKER_MODE_OFFLINE means TRACKER_MODE = "offline"."""
    import kconfiglib

    strings = [s.name for s in kconf.unique_defined_syms if s.orig_type == kconfiglib.STRING]
    return {
        symbol.name: (option, symbol.name.removeprefix(option + "_").lower())
        for choice in kconf.unique_choices
        for symbol in choice.syms
        for option in strings
        if symbol.name.startswith(option + "_") and not any(node.prompt for node in kconf.syms[option].nodes)
    }


def _declarations(kconf: Any, members: Mapping[str, tuple[str, str]]) -> Iterator[Declaration]:
    import kconfiglib

    for symbol in kconf.unique_defined_syms:
        if symbol.name in members:
            continue
        node = symbol.nodes[0]
        kind = kconfiglib.TYPE_TO_STR[symbol.orig_type]
        menu = node.parent
        while menu.parent is not None and menu.item != kconfiglib.MENU:
            menu = menu.parent
        limits = [(int(low.str_value, 0), int(high.str_value, 0)) for low, high, _ in symbol.ranges]
        choices = tuple(value for option, value in members.values() if option == symbol.name)
        yield Declaration(
            symbol=symbol.name,
            kind=kind,
            prompt=node.prompt[0] if node.prompt else _choice_prompt(kconf, symbol.name, members),
            help=" ".join((node.help or "").split()),
            menu=menu.prompt[0] if menu.prompt else "",
            default=bool(symbol.tri_value) if kind == "bool" else _typed(kind, symbol.str_value),
            choices=choices,
            limits=limits[0] if limits else None,
            depends="" if symbol.direct_dep is kconf.y else kconfiglib.expr_str(symbol.direct_dep),
        )


def _choice_prompt(kconf: Any, option: str, members: Mapping[str, tuple[str, str]]) -> str:
    first = next((name for name, (of, _) in members.items() if of == option), None)
    return kconf.syms[first].choice.nodes[0].prompt[0] if first else option


def _typed(kind: str, text: str) -> bool | int | str:
    if kind == "bool":
        return text == "y"
    if kind in ("int", "hex"):
        return int(text, 16 if kind == "hex" else 10)
    return text


def _check_text(name: str, value: str, source: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{source}: {name} isn't valid UTF-8: {value!r}") from None
    if name == "TRACKER" and not value.strip(", "):
        raise ConfigError(f'{source}: TRACKER names no tracker: write "none" to track nothing')
    pattern, words = _PATTERNS.get(name, (None, ""))
    if value and pattern is not None and pattern.fullmatch(value) is None:
        raise ConfigError(f"{source}: {name} is {words}, not {value!r}")


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {near[0]}?" if near else ""


def _either(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
