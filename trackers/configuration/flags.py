"""Command-line flags for a script's own argparse parser: one for each option."""

from __future__ import annotations

import argparse
from typing import Any

from trackers.backends import registry
from trackers.configuration.declaration import Declaration
from trackers.configuration.kconfig import Tree
from trackers.errors import UsageError

DEFCONFIG = "--defconfig"


def add_arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add ``--tracker``, ``--tracker-project``, … and ``--defconfig`` to a parser.

    Each option of the Kconfig file gets a flag, bools a ``--no-`` form too. What isn't given stays None, so that
    the other ways to set an option count.

    Raises:
        UsageError: the parser has one of these flags already.
    """
    declarations = Tree().declarations.values()
    _check_free(parser, [DEFCONFIG, *(flag for d in declarations for flag in _spellings(d))])
    group = parser.add_argument_group("experiment tracking")
    group.add_argument(
        DEFCONFIG,
        metavar="NAME|PATH",
        help="File of options to read rather than .config: a name (`trackers list-defconfigs`) or a path.",
    )
    for declaration in declarations:
        _add(group, declaration)
    return group


def flags_from_args(namespace: argparse.Namespace) -> tuple[dict[str, Any], str | None]:
    """What the command line gave, as ``configuration.resolve`` takes it: flags by symbol, and the defconfig."""
    flags = {name: getattr(namespace, name.lower(), None) for name in Tree().declarations}
    given = {name: value for name, value in flags.items() if value is not None}
    return given, getattr(namespace, "defconfig", None)


def _add(group: argparse._ArgumentGroup, declaration: Declaration) -> None:
    help_text = declaration.help.replace("%", "%%")
    if declaration.symbol == "TRACKER":
        help_text += f" Built in: {', '.join(sorted(registry.BUILT_IN))}."
    if declaration.kind == "bool":
        group.add_argument(declaration.flag, action=argparse.BooleanOptionalAction, default=None, help=help_text)
    elif declaration.choices:
        group.add_argument(declaration.flag, choices=declaration.choices, help=help_text)
    elif declaration.kind == "int":
        group.add_argument(declaration.flag, type=int, metavar="N", help=help_text)
    else:
        group.add_argument(declaration.flag, metavar="TEXT", help=help_text)


def _spellings(declaration: Declaration) -> list[str]:
    flag = declaration.flag
    return [flag, "--no-" + flag.removeprefix("--")] if declaration.kind == "bool" else [flag]


def _check_free(parser: argparse.ArgumentParser, flags: list[str]) -> None:
    # Both would write to one attribute of the namespace even where only the attribute's name is the same.
    taken = {option for action in parser._actions for option in action.option_strings}
    attributes = {action.dest for action in parser._actions}
    for flag in flags:
        if flag in taken or flag.removeprefix("--").replace("-", "_") in attributes:
            raise UsageError(
                f"the parser already has {flag}: remove it there (trackers.add_arguments adds it), "
                "or pass its value to trackers.init yourself and don't call add_arguments"
            )
