"""Flags of all commands that take sources, of other distributions: by entry points of the group ``trackers.flags``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.main import get_command_from_info
from typer.models import CommandInfo

from trackers.errors import UsageError
from trackers.support import plugins


def options() -> list[Any]:
    """The plug-ins' flags. Hidden are those that say why they can't be loaded, or what to install for one of ours."""
    return [_option(name) for name in sorted({*plugins.targets(plugins.FLAGS), *plugins.ours("flag")})]


def _option(name: str) -> Any:
    try:
        brought = plugins.flag(name)
    except UsageError as error:
        return _made(name, _failing(error), hidden=True)
    (metavar,) = inspect.signature(brought).parameters
    about = (inspect.getdoc(brought) or "").split("\n\n")[0].replace("\n", " ")
    return _made(name, brought, metavar=metavar.upper(), help=about)


def _failing(error: UsageError) -> Callable[[Sequence[str]], object]:
    def fails(values: Sequence[str]) -> object:
        raise error

    return fails


def _made(name: str, call: Callable[[Sequence[str]], object], **shown: Any) -> Any:
    """An option as typer makes one of a function's parameter: it says nothing of options alone."""

    def given(values: list[str] | None) -> list[str] | None:
        if values:
            call(values)
        return values

    def flag(values: Any = None) -> None:
        """What has the parameter."""

    declared = typer.Option(f"--{name}", expose_value=False, callback=given, **shown)
    flag.__annotations__["values"] = Annotated[list[str] | None, declared]
    made = get_command_from_info(
        CommandInfo(name=name, callback=flag), pretty_exceptions_short=True, rich_markup_mode=None
    )
    option = next(of for of in made.params if f"--{name}" in of.opts)
    option.name = f"flag {name}"  # what was given is told apart by it, from the command's own parameters, too
    return option
