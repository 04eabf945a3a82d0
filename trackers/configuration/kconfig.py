"""The Kconfig tree: which options there are, what values they take, and what they are worth together.

``kconfiglib`` parses the tree and evaluates dependencies and defaults. It is silent about most mistakes, so
every value is checked here before it gets there.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trackers.configuration import plugin_options
from trackers.configuration.declaration import Assignment, Declaration
from trackers.configuration.search_path import KCONFIG, parse
from trackers.configuration.trusted import is_harmless
from trackers.errors import ConfigError, examples, quoted, shortened

_PREFIXES = ("TRACKER", "WANDB_", "MLFLOW_", "TRACKIO_", "TENSORBOARD_", "JSON_", "CSV_", "BASELINE_")
_WORDS = {"bool": "y or n", "tristate": "y, m or n", "int": "a whole number", "hex": "a number like 0x1f"}
_WHEN_OFF = {"TRACKER": "none", "TRACKER_MODE": "disabled"}


_unused: list[Any] = []
"""Trees of our own file that kconfiglib has parsed and nobody uses now: without values of anybody."""


class Tree:
    """A parsed Kconfig tree with the values given so far.

    As a context it gives kconfiglib's tree back in the end, for the next one of our own file: to parse it takes ten
    times as long as everything else.

    Attributes:
        declarations: our options by symbol, in the file's order.
        unused: values from elsewhere than files that don't count, as the tree has switched tracking off.
        members: the symbols of choices: ``{"TRACKER_MODE_OFFLINE": ("TRACKER_MODE", "offline")}``.
        of_plugins: values of options that a plug-in hasn't declared, by symbol.
        kconf: kconfiglib's own tree.

    Args:
        root: the tree's first file; None for ours alone.
        trusted: the user named it or trusts its directory; else it is data (:func:`parse`), and has no say in which
            programs run, what is contacted and what is written outside of its directory.
        environ: what its variables are taken from; None for the process's own environment.

    Raises:
        ConfigError: the tree can't be parsed, or lacks some of our options.
    """

    def __init__(
        self, root: Path | None = None, *, trusted: bool = True, environ: Mapping[str, str] | None = None
    ) -> None:
        self.root = root or KCONFIG
        self.trusted = trusted
        self._assigned: dict[str, str] = {}
        self._elsewhere: dict[str, Assignment] = {}
        self._remarks: list[str] = []
        self.unused: list[Assignment] = []
        self.foreign = self.root != KCONFIG
        self.of_plugins: dict[str, Assignment] = {}
        self.declarations, self.members = declared()
        self.kconf = parse(self.root, trusted, environ, plugin_options.menus()) if self.foreign else _ours()
        if self.foreign:  # it may have a copy of our file, without the options of plug-ins
            self.declarations = {
                name: d for name, d in self.declarations.items() if not d.plugin or self._defined(name)
            }
            self.members = {name: member for name, member in self.members.items() if member[0] in self.declarations}
        lacking = [name for name in (*self.declarations, *self.members) if not self._defined(name)]
        if lacking:
            raise ConfigError(
                f"{self.root}: {lacking[0]} isn't declared; source trackers' own file: {KCONFIG} (`trackers kconfig`)"
            )
        if self.foreign:
            self._check_names()

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

    def _check_names(self) -> None:
        """See that the tree declares no symbol of its own by a name of ours. It may give one of ours a default."""
        import kconfiglib

        home = self.root.parent
        ours = functools.cache(lambda filename: Path(home, filename).resolve() == KCONFIG)
        for name in (*self.declarations, *self.members):
            symbol = self.kconf.syms[name]
            places = [node for node in symbol.nodes if not ours(node.filename)]
            if len(places) == len(symbol.nodes):  # the tree has a copy of our file
                continue
            alien = kconfiglib.TYPE_TO_STR[symbol.orig_type] != self.kind(name)
            for node in places:
                if node.prompt or alien:
                    place = os.path.relpath(Path(home, node.filename), home)
                    raise ConfigError(
                        f"{place}:{node.linenr}: {name} is an option of trackers: give the tree's own symbol another "
                        "name, or leave its prompt and its type out to change the option's default"
                    )

    def knows(self, name: str) -> bool:
        """Whether the option is ours, in any spelling: a choice's value too is a symbol."""
        return name in self.declarations or name in self.members

    def takes(self, name: str) -> bool:
        """Whether the option is nobody's, but begins as those of an installed plug-in do, which declares none."""
        return not self.knows(name) and not self._defined(name) and name.startswith(plugin_options.undeclared())

    def elsewhere(self, prefixes: tuple[str, ...]) -> Iterator[Assignment]:
        """Values of the surrounding tree's own symbols that begin so: it declares what a plug-in doesn't."""
        for symbol in self.kconf.unique_defined_syms if self.foreign and prefixes else ():
            if symbol.name.startswith(prefixes) and not self.knows(symbol.name) and symbol.str_value:
                given = self._elsewhere.get(symbol.name)
                yield Assignment(symbol.name, symbol.str_value, given.source if given else "default")

    def knows_elsewhere(self, name: str) -> bool:
        """Whether the symbol belongs to the tree that sources ours."""
        return self.foreign and not self.knows(name) and self._defined(name)

    def takes_quotes(self, name: str) -> bool:
        """Whether the symbol belongs to the surrounding tree, and is text."""
        import kconfiglib

        return self.knows_elsewhere(name) and self.kconf.syms[name].orig_type == kconfiglib.STRING

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
                self._set_elsewhere(assignment)
                continue
            if self.takes(assignment.symbol):
                self.of_plugins[assignment.symbol] = assignment
                continue
            assignment = self._by_option(assignment)
            if assignment.symbol in self.members:  # a choice's value that isn't chosen
                self.kconf.syms[assignment.symbol].set_value(0)
                continue
            earlier = by_symbol.get(assignment.symbol)
            if earlier is not None and earlier.value != assignment.value:
                raise ConfigError(
                    f"{assignment.source}: {assignment.symbol} is set to {quoted(assignment.value)}, "
                    f"but {earlier.source} says {quoted(earlier.value)}: keep one"
                )
            self.declarations[assignment.symbol].check(assignment.value, assignment.source)
            self._set(assignment)
            by_symbol[assignment.symbol] = assignment
            sources[assignment.symbol] = assignment.source
        if self.off:
            self._check_off(by_symbol)
            self.unused += [assignment for assignment in by_symbol.values() if not assignment.from_file]
            return {}
        for assignment in by_symbol.values():
            self._check_dependency(assignment)
        return sources

    @property
    def off(self) -> bool:
        """Whether the tree has all of our options below a condition that isn't met: nothing is tracked then."""
        import kconfiglib

        return self.foreign and not kconfiglib.expr_value(self.kconf.syms["TRACKER"].direct_dep)

    @property
    def condition(self) -> str:
        """The condition around our options, as Kconfig writes it."""
        import kconfiglib

        return str(kconfiglib.expr_str(self.kconf.syms["TRACKER"].direct_dep))

    def _check_off(self, given: Mapping[str, Assignment]) -> None:
        """Who asks for a tracker on the command line is told; all else was meant for when the condition is met."""
        asked = given.get("TRACKER")
        if asked is not None and asked.source.startswith("flag ") and asked.value != _WHEN_OFF["TRACKER"]:
            self._check_dependency(asked)

    def _set_elsewhere(self, assignment: Assignment) -> None:
        """Give a value to a symbol of the tree that sources ours, as conf does, which warns of what it can't take."""
        import kconfiglib

        name, value, source = assignment
        symbol, before = self.kconf.syms[name], self._elsewhere.get(name)
        kind = kconfiglib.TYPE_TO_STR[symbol.orig_type]
        if kind in ("bool", "tristate") and value[:1] in ("y", "m", "n"):
            value = value[0]
        if before is not None and before.value != value:
            self._remarks.append(
                f"{source}: {name} is set to {quoted(value)}, but {before.source} says {quoted(before.value)}"
            )
        if symbol.set_value(value):
            self._elsewhere[name] = assignment._replace(value=value)
        else:
            self._remarks.append(f"{source}: {name}={value} isn't taken: it is {_WORDS.get(kind, kind)}")

    def remarks(self) -> list[str]:
        """A line for each value of the surrounding tree that was given and isn't taken as it is, as conf warns."""
        import kconfiglib

        found = list(self._remarks)
        for name, value, source in self._elsewhere.values():
            symbol = self.kconf.syms[name]
            now = symbol.str_value
            if now == value or not symbol.visibility:
                continue
            if symbol.choice is not None and value == "y":
                chosen = symbol.choice.selection
                found.append(
                    f"{source}: {name}=y isn't taken: of this choice, {chosen.name if chosen else 'none'} is y"
                )
            limits = [(low, high) for low, high, condition in symbol.ranges if kconfiglib.expr_value(condition)]
            if limits:
                low, high = (bound.str_value for bound in limits[0])
                found.append(f"{source}: {name}={value} isn't taken: it is {low} to {high}, and becomes {now}")
        return found

    def _by_option(self, assignment: Assignment) -> Assignment:
        if assignment.symbol in self.members and assignment.value == "y":
            option, value = self.members[assignment.symbol]
            return Assignment(option, value, assignment.source)
        return assignment

    def _set(self, assignment: Assignment) -> None:
        name, value, _ = assignment
        self._assigned[name] = value
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
            f"{source}: {name} needs {shortened(kconfiglib.expr_str(symbol.direct_dep))}, which isn't so: "
            f"change that too, or leave {name} out"
        )

    def value(self, name: str) -> bool | int | str:
        """An option's value as things stand.

        Where a dependency is unmet, it is what the option is worth when nobody sets it; a tree that sources us
        below a condition that isn't met has switched tracking off.

        Raises:
            ConfigError: the tree gives the option a default that it can't take.
        """
        import kconfiglib

        symbol, declaration = self.kconf.syms[name], self.declarations[name]
        if declaration.needs_trust and not self.trusted and self._assigned.get(name) != symbol.str_value:
            found = declaration.parse(symbol.str_value)  # the tree's own, whatever was given
            return found if is_harmless(name, found, self.root.parent) else declaration.default
        if declaration.kind == "bool":
            return bool(symbol.tri_value)
        if not kconfiglib.expr_value(symbol.direct_dep):
            return _WHEN_OFF.get(name, declaration.default)
        if self.foreign:
            declaration.check(symbol.str_value, str(self.root))
        return declaration.parse(symbol.str_value)

    def unknown(self, name: str, source: str) -> ConfigError:
        """The error that names an unknown symbol and the nearest known one."""
        near = difflib.get_close_matches(name, (*self.declarations, *self.members), n=1)
        known = f". Known: {examples(self.declarations)}; all: trackers show-config"
        hint = f": did you mean {near[0]}?" if near else known
        return ConfigError(f"{source}: unknown option {shortened(name)}{hint}")

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
        return parse(KCONFIG, more=plugin_options.menus())


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
            plugin=plugin_options.plugin_of(symbol.name),
            depends="" if symbol.direct_dep is kconf.y else kconfiglib.expr_str(symbol.direct_dep),
        )
        yield dataclasses.replace(declaration, default=declaration.parse(symbol.str_value))


def _choice_prompt(kconf: Any, option: str, members: Mapping[str, tuple[str, str]]) -> str:
    first = next((name for name, (of, _) in members.items() if of == option), None)
    return kconf.syms[first].choice.nodes[0].prompt[0] if first else option
