"""The Kconfig tree: which options there are, what values they take, and what they are worth together.

``kconfiglib`` parses the tree and evaluates dependencies and defaults. It is silent about most mistakes, so
every value is checked here before it gets there.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trackers.configuration.declaration import PROGRAMS, Assignment, Declaration
from trackers.configuration.search_path import KCONFIG, parse
from trackers.errors import ConfigError

_PREFIXES = ("TRACKER", "WANDB_", "MLFLOW_", "TRACKIO_", "TENSORBOARD_", "JSON_", "CSV_", "BASELINE_")
_WHEN_OFF = {"TRACKER": "none", "TRACKER_MODE": "disabled"}


_unused: list[Any] = []
"""Trees of our own file that kconfiglib has parsed and nobody uses now: without values of anybody."""


class Tree:
    """A parsed Kconfig tree with the values given so far.

    As a context it gives kconfiglib's tree back in the end, for the next one of our own file: to parse it takes ten
    times as long as everything else.

    Attributes:
        declarations: our options by symbol, in the file's order.
        members: the symbols of choices: ``{"TRACKER_MODE_OFFLINE": ("TRACKER_MODE", "offline")}``.
        kconf: kconfiglib's own tree.

    Args:
        root: the tree's first file; None for ours alone.
        named: the user named it; else nothing of it is run, and it has no say in which programs run.
        environ: what its variables are taken from; None for the process's own environment.

    Raises:
        ConfigError: the tree can't be parsed, or lacks some of our options.
    """

    def __init__(
        self, root: Path | None = None, *, named: bool = True, environ: Mapping[str, str] | None = None
    ) -> None:
        self.root = root or KCONFIG
        self._named = named
        self._assigned: set[str] = set()
        self.foreign = self.root != KCONFIG
        self.declarations, self.members = declared()
        self.kconf = parse(self.root, named, environ) if self.foreign else _ours()
        lacking = [name for name in (*self.declarations, *self.members) if not self._defined(name)]
        if lacking:
            raise ConfigError(
                f"{self.root}: {lacking[0]} isn't declared; source trackers' own file: {KCONFIG} (`trackers kconfig`)"
            )

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        kconf, self.kconf = self.kconf, None
        if not self.foreign:
            kconf.unset_values()
            _unused.append(kconf)

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

    def assign(self, assignments: Iterable[Assignment]) -> dict[str, str]:
        """Give values, all of one level: they beat what was given before.

        Returns:
            source by option, for what was given.

        Raises:
            ConfigError: a value is of the wrong type or out of range, a dependency is unmet, or two values of
                one choice are given.
        """
        sources: dict[str, str] = {}
        by_symbol: dict[str, Assignment] = {}
        for assignment in assignments:
            if self.knows_elsewhere(assignment.symbol):
                self.kconf.syms[assignment.symbol].set_value(assignment.value)
                continue
            assignment = self._by_option(assignment)
            if assignment.symbol in self.members:  # a choice's value that isn't chosen
                self.kconf.syms[assignment.symbol].set_value(0)
                continue
            earlier = by_symbol.get(assignment.symbol)
            if earlier is not None and earlier.value != assignment.value:
                raise ConfigError(
                    f"{assignment.source}: {assignment.symbol} is set to {assignment.value!r}, "
                    f"but {earlier.source} says {earlier.value!r}: keep one"
                )
            self.declarations[assignment.symbol].check(assignment.value, assignment.source)
            self._set(assignment)
            by_symbol[assignment.symbol] = assignment
            sources[assignment.symbol] = assignment.source
        for assignment in by_symbol.values():
            self._check_dependency(assignment)
        return sources

    def _by_option(self, assignment: Assignment) -> Assignment:
        if assignment.symbol in self.members and assignment.value == "y":
            option, value = self.members[assignment.symbol]
            return Assignment(option, value, assignment.source)
        return assignment

    def _set(self, assignment: Assignment) -> None:
        name, value, _ = assignment
        self._assigned.add(name)
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
        if name in PROGRAMS and not self._named and name not in self._assigned:  # a default of the tree that was found
            return declaration.default
        if declaration.kind == "bool":
            return bool(symbol.tri_value)
        if not kconfiglib.expr_value(symbol.direct_dep):
            return _WHEN_OFF.get(name, declaration.default)
        return declaration.parse(symbol.str_value)

    def unknown(self, name: str, source: str) -> ConfigError:
        """The error that names an unknown symbol and the nearest known one."""
        near = difflib.get_close_matches(name, (*self.declarations, *self.members), n=1)
        hint = f": did you mean {near[0]}?" if near else f". Known: {', '.join(self.declarations)}"
        return ConfigError(f"{source}: unknown option {name}{hint}")

    def is_similar(self, name: str) -> bool:
        """Whether an unknown symbol is spelt nearly like one of ours."""
        return bool(difflib.get_close_matches(name, self.declarations, n=1, cutoff=0.8))


@functools.cache
def declared() -> tuple[Mapping[str, Declaration], Mapping[str, tuple[str, str]]]:
    """What our own file declares: ``declarations`` and ``members`` of a :class:`Tree`.

    Raises:
        ConfigError: the file can't be parsed.
    """
    kconf = _ours()
    members = _members(kconf)
    declarations = {declaration.symbol: declaration for declaration in _declarations(kconf, members)}
    _unused.append(kconf)
    return MappingProxyType(declarations), MappingProxyType(members)


def _ours() -> Any:
    """kconfiglib's tree of our own file, without values."""
    try:
        return _unused.pop()
    except IndexError:
        return parse(KCONFIG)


def is_prefixed(name: str) -> bool:
    """Whether a symbol begins as ours do: TRACKER, WANDB_, …"""
    return name.startswith(_PREFIXES)


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
        declaration = Declaration(
            symbol=symbol.name,
            kind=kind,
            prompt=node.prompt[0] if node.prompt else _choice_prompt(kconf, symbol.name, members),
            help=" ".join((node.help or "").split()),
            menu=menu.prompt[0] if menu.prompt else "",
            default=False,
            choices=choices,
            limits=limits[0] if limits else None,
            depends="" if symbol.direct_dep is kconf.y else kconfiglib.expr_str(symbol.direct_dep),
        )
        yield dataclasses.replace(declaration, default=declaration.parse(symbol.str_value))


def _choice_prompt(kconf: Any, option: str, members: Mapping[str, tuple[str, str]]) -> str:
    first = next((name for name, (of, _) in members.items() if of == option), None)
    return kconf.syms[first].choice.nodes[0].prompt[0] if first else option
