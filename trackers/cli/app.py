"""The program: its commands, by the panels that its help shows."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command_from_info, get_command_name, get_group
from typer.models import CommandInfo

from trackers._version import __version__
from trackers.cli import (
    alerts,
    analysis,
    artifacts,
    config,
    doctor,
    editing,
    files,
    gpu,
    logs,
    new_plugin,
    plot,
    plugin_commands,
    plugin_flags,
    programs,
    retention,
    runs,
    setup,
    spans,
    stop,
    sync,
    tables,
    ui,
)

COMMANDS: tuple[tuple[str, tuple[Callable[..., Any], ...]], ...] = (
    ("Runs", (runs.ls, runs.show, logs.logs, ui.ui, sync.sync, editing.edit, editing.rm, stop.stop)),
    ("Sources", (runs.keys, files.files, files.get, spans.spans, sync.copy, gpu.gpu_report)),
    ("Analysis", (analysis.compare, plot.plot, analysis.report, analysis.best, analysis.diff, analysis.argv,
                  analysis.sql, analysis.bench_export)),
    ("Keeping", (retention.archive, retention.restore, retention.prune)),
    ("Machine", (doctor.doctor, new_plugin.new_plugin)),
)  # fmt: skip
"""Panels and their commands; a command is called as its function, with "-" for "_"."""
GROUPS = {
    "alerts": alerts.app, "artifacts": artifacts.app, "tables": tables.app, "config": config.group,
    "setup": setup.app,
    "gpu": gpu.app, "wandb": programs.wandb, "benchmark": programs.benchmark,
}  # fmt: skip
"""Commands that have commands of their own."""
GROUP_PANELS = {
    "alerts": "Runs", "artifacts": "Sources", "tables": "Sources", "config": "Machine",
    "setup": "Machine",
    "gpu": "Machine", "wandb": "Sources", "benchmark": "Analysis",
}  # fmt: skip


class _Commands(Mapping[str, Any]):
    """Commands by name, each built when it is asked for: to build all takes longer than most of them run.

    Args:
        declared: what ``typer`` knows of each, in the help's order. groups: commands that have commands of their own.
    """

    def __init__(self, declared: list[CommandInfo], groups: Mapping[str, typer.Typer]) -> None:
        self._declared: dict[str, CommandInfo | typer.Typer] = {
            command.name or get_command_name(getattr(command.callback, "__name__", "")): command for command in declared
        }
        self._declared.update(groups)
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            declared = self._declared[name]
            if isinstance(declared, typer.Typer):
                for command in declared.registered_commands:
                    command.help = command.help or plugin_commands.in_paragraphs(command.callback)
                self._built[name] = get_group(declared)
                self._built[name].rich_help_panel = GROUP_PANELS[name]
                for inner, brought in plugin_commands.of_group(name).items():
                    self._built[name].commands.setdefault(inner, brought)
            else:
                declared.help = declared.help or plugin_commands.in_paragraphs(declared.callback)
                self._built[name] = get_command_from_info(
                    declared, pretty_exceptions_short=app.pretty_exceptions_short, rich_markup_mode=app.rich_markup_mode
                )
            _finish(self._built[name])
        return self._built[name]

    def overview(self) -> Iterator[tuple[str, str, str]]:
        """Panel, name and help of each command that isn't hidden, panel by panel, without building any."""
        listed = []
        for name, declared in self._declared.items():
            if isinstance(declared, typer.Typer):
                listed.append((GROUP_PANELS[name], name, str(declared.info.help)))
            elif not declared.hidden:
                about = declared.help or plugin_commands.in_paragraphs(declared.callback)
                listed.append((str(declared.rich_help_panel), name, about.split("\n\n")[0].replace("``", "")))
        order = [panel for panel, _ in COMMANDS]
        yield from sorted(listed, key=lambda entry: order.index(entry[0]))

    def __contains__(self, name: object) -> bool:
        """Whether a command is ours; ``GROUP.NAME``: one of a group."""
        group, _, inner = str(name).partition(".")
        declared = self._declared.get(group)
        own = declared.registered_commands if isinstance(declared, typer.Typer) else ()
        return declared is not None and (not inner or any(inner == one.name for one in own))

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)


def _add_flags(command: Any) -> None:
    """Give a command that takes sources, or those commands of a group that do, the flags that plug-ins bring."""
    takers = [
        one
        for one in _with_inner(command)
        if any(str(of.metavar or "").strip("[").startswith("SOURCE") for of in one.params)
    ]
    for option in plugin_flags.options() if takers else ():
        for taker in takers:
            if not any(set(option.opts) & {*of.opts, *of.secondary_opts} for of in taker.params):  # ours stay ours
                taker.params.append(option)


def _finish(command: Any) -> Any:
    """The command, ours or a plug-in's, with what all of them have."""
    _add_flags(command)
    for one in {command, *_with_inner(command)}:
        _tidy(one)
    return command


def _with_inner(command: Any) -> Iterator[Any]:
    """A command; of a group, its commands."""
    return iter(command.commands.values() if isinstance(command, TyperGroup) else [command])


def _tidy(command: Any) -> None:
    """Show an argument in the usage line as its metavar is written, and no type where it says nothing: of flags."""
    for param in command.params:
        metavar = param.metavar
        if param.param_type_name == "argument" and metavar:
            param.get_usage_pieces = lambda ctx, shown=metavar: [shown]
            param.display_type_rich = lambda ctx: None
        elif getattr(param, "is_flag", False):
            param.display_type_rich = lambda ctx: None
    help_option = command.get_help_option

    def without_type(ctx: Any) -> Any:
        option = help_option(ctx)
        if option is not None:
            option.display_type_rich = lambda ctx: None
        return option

    command.get_help_option = without_type


def _brief(text: str, width: int) -> str:
    """As much of a sentence as fits, up to a sign that ends a part of it."""
    if len(text) <= width:
        return text.rstrip(".")
    ends = (text[: match.start()] for match in re.finditer(r"[:;,.] | \(", text) if match.start() <= width)
    whole = [part for part in ends if part.count("(") == part.count(")")]
    return whole[-1] if whole else f"{text[: width - 1].rstrip()}…"


class _Program(TyperGroup):
    """The program as ``typer`` runs it, with the commands of :data:`app`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = commands  # type: ignore[assignment]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """All commands on one screen: a line each."""
        width = max(60, min(shutil.get_terminal_size().columns, 110))
        entries = [*commands.overview(), *plugin_commands.overview(self.commands)]
        name_width = max(len(name) for _, name, _ in entries)
        formatter.write(f"Usage: {ctx.command_path} COMMAND …    (COMMAND --help: its options, and an example)\n\n")
        before = ""
        for panel, name, about in entries:
            shown, before = "" if panel == before else panel, panel
            formatter.write(f"{shown:<9} {name:<{name_width}}  {_brief(about, width - 12 - name_width)}\n")
        formatter.write("\n--version; --install-completion, --show-completion: names completed by the shell\n")

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of ours, or a plug-in's."""
        if (command := super().get_command(ctx, cmd_name)) is None:
            brought = plugin_commands.command(cmd_name)
            return brought and _finish(brought)
        return command

    def list_commands(self, ctx: Any) -> list[str]:
        """Ours, in the help's order, and the plug-ins'."""
        return [*super().list_commands(ctx), *plugin_commands.names(self.commands)]


app = typer.Typer(
    cls=_Program,
    help="Log a training run once; every tracker receives all of it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trackers {__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Log a training run once; every tracker gets all of it."""


for panel, functions in COMMANDS:
    for function in functions:
        app.command(rich_help_panel=panel)(function)
config.register(app)
# typer would build whatever it finds there at each start.
commands = _Commands(app.registered_commands, GROUPS)
app.registered_commands = []
