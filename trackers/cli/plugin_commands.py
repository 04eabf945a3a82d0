"""Commands that other distributions bring: ``trackers NAME …``, by entry points of the group ``trackers.commands``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterator
from typing import Any

import typer
from typer.main import get_command

from trackers.errors import UsageError
from trackers.support import plugins

GROUP = plugins.COMMANDS
PANEL = "Plug-ins"


def names(taken: Container[str]) -> list[str]:
    """Names of the plug-ins' commands, sorted; what is ours stays ours."""
    return sorted(name for name in plugins.targets(GROUP) if name not in taken and "." not in name)


def of_group(group: str) -> dict[str, Any]:
    """What plug-ins add to a group of ours, ``GROUP.NAME``; hidden is what a distribution of ours would bring."""
    brought = plugins.targets(GROUP)
    found = sorted(name for name in {*brought, *plugins.ours("command")} if name.startswith(f"{group}."))
    made = {name: command(name) for name in found}
    for name in made.keys() - brought.keys():
        made[name].hidden = True
    return {name.removeprefix(f"{group}."): one for name, one in made.items()}


def overview(taken: Container[str]) -> Iterator[tuple[str, str, str]]:
    """Panel, name and help of each, for the program's own help."""
    for name in names(taken):
        made = command(name)
        yield PANEL, name, " ".join((made.help or "").split("\n\n")[0].split())


def command(name: str) -> Any:
    """A plug-in's command; None where no plug-in has it. One that can't be loaded, or that a distribution of ours would
    bring, says so when it is run.

    An entry point names a ``typer.Typer``, whose commands follow the name (one alone is the command itself).
    """
    if name not in plugins.targets(GROUP):
        install = plugins.install(name, "command")
        return _failing(f"command {_called(name)!r} is of another distribution: {install}") if install else None
    try:
        brought = load(name)
        for declared in brought.registered_commands:
            declared.help = declared.help or in_paragraphs(declared.callback)
        made = get_command(brought)
    except UsageError as error:
        made = _failing(str(error))
    made.name = name.rpartition(".")[2]
    made.rich_help_panel = PANEL  # type: ignore[attr-defined]
    return made


def in_paragraphs(function: Callable[..., Any] | None) -> str:
    """A docstring with each paragraph on one line: typer keeps its line breaks, which no terminal's width knows."""
    return "\n\n".join(" ".join(part.split("\n")) for part in (inspect.getdoc(function) or "").split("\n\n"))


def load(name: str) -> typer.Typer:
    """What a plug-in's entry point names.

    Raises:
        UsageError: it can't be loaded, or is no command.
    """
    target = plugins.targets(GROUP)[name]
    what = f"command {_called(name)!r} of {plugins.distribution(GROUP, name)}"
    brought = plugins.load(what, target)
    if not isinstance(brought, typer.Typer):
        raise UsageError(f"{what}: {target!r} is no typer.Typer: {plugins.PAGE}")
    return brought


def _called(name: str) -> str:
    return name.replace(".", " ")


def _failing(text: str) -> Any:
    failing = typer.Typer(rich_markup_mode=None)  # the text may have [brackets]

    @failing.command(
        help=f"Can't be run: {text}", context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
    )
    def fails() -> None:
        raise UsageError(text)

    return get_command(failing)
