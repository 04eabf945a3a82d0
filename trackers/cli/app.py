"""The program: its commands, by the panels that its help shows."""

from __future__ import annotations

import inspect
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
    lake,
    logs,
    plot,
    plugin_commands,
    rerun,
    retention,
    runs,
    spans,
    sweep,
    sync,
    tables,
    ui,
    watch,
)

COMMANDS: tuple[tuple[str, tuple[Callable[..., Any], ...]], ...] = (
    ("Runs", (runs.ls, runs.show, logs.logs, ui.ui, watch.watch, sync.sync, editing.edit, editing.rm, sweep.run,
              rerun.rerun)),
    ("Sources", (runs.keys, files.files, files.get, spans.spans, sync.copy, gpu.gpu_report)),
    ("Analysis", (analysis.compare, plot.plot, analysis.report, analysis.best, analysis.diff, analysis.argv,
                  analysis.sql, analysis.bench_export)),
    ("Hardware", (gpu.gpu,)),
)  # fmt: skip
"""Panels and their commands; a command is called as its function, with "-" for "_"."""
GROUPS = {"alerts": alerts.app, "artifacts": artifacts.app, "lake": lake.app, "tables": tables.app}
"""Commands that have commands of their own."""
GROUP_PANELS = {"alerts": "Runs", "artifacts": "Sources", "lake": "Sources", "tables": "Sources"}
KEEPING = (retention.archive, retention.restore, retention.prune)


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
                    command.help = command.help or _in_paragraphs(command.callback)
                self._built[name] = get_group(declared)
                self._built[name].rich_help_panel = GROUP_PANELS[name]
            else:
                declared.help = declared.help or _in_paragraphs(declared.callback)
                self._built[name] = get_command_from_info(
                    declared,
                    pretty_exceptions_short=app.pretty_exceptions_short,
                    rich_markup_mode=app.rich_markup_mode,
                )
            _add_log_format(self._built[name])
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)


def _use_log_formats(paths: list[str] | None) -> list[str] | None:
    """Have readers of console logs know these files, before what the environment names."""
    if paths:
        from trackers.readers.console_log.own_format import use

        use(paths)
    return paths


def _log_format(
    log_format: Annotated[
        list[str] | None,
        typer.Option(
            "--log-format",
            metavar="FILE",
            expose_value=False,
            callback=_use_log_formats,
            help="A format of your own for log:FILE (TOML).",
        ),
    ] = None,
) -> None:
    """The option that every command with sources has."""


def _add_log_format(command: Any) -> None:
    """Give a command that takes sources, or those commands of a group that do, the option for formats of logs."""
    inner = command.commands.values() if isinstance(command, TyperGroup) else [command]
    takers = [one for one in inner if any(str(of.metavar or "").strip("[").startswith("SOURCE") for of in one.params)]
    if takers:
        info = CommandInfo(name="log-format", callback=_log_format)
        made = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=app.rich_markup_mode)
        option = next(of for of in made.params if "--log-format" in of.opts)
        for taker in takers:
            taker.params.append(option)


def _in_paragraphs(function: Callable[..., Any] | None) -> str:
    """A docstring with each paragraph on one line: typer keeps its line breaks, which no terminal's width knows."""
    return "\n\n".join(" ".join(part.split("\n")) for part in (inspect.getdoc(function) or "").split("\n\n"))


class _Program(TyperGroup):
    """The program as ``typer`` runs it, with the commands of :data:`app`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _commands  # type: ignore[assignment]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of ours, or a plug-in's."""
        return super().get_command(ctx, cmd_name) or plugin_commands.command(cmd_name)

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
for function in KEEPING:
    app.command(rich_help_panel="Keeping")(function)
doctor.register(app)
# typer would build whatever it finds there at each start.
_commands = _Commands(app.registered_commands, GROUPS)
app.registered_commands = []
