"""Code shared by commands and scripts: exit codes, options, locations of runs, formats of numbers and times."""

from __future__ import annotations

import contextlib
import io
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from trackers.cli import completion
from trackers.cli.roots import runs_root

if TYPE_CHECKING:
    from trackers.analysis.tables import TextTable
    from trackers.readers.reader import Reader, SourceRun
    from trackers.readers.run_data import RunData

RunsDir = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help="Directory of runs, or a store (s3://bucket/prefix); default TRACKER_DIR, else .config's, else runs/.",
        callback=lambda context, path: path if path is None or context.resilient_parsing else runs_root(path),
    ),
]
StoreOrDir = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help="Directory of runs, or a store (s3://bucket/prefix); default TRACKER_DIR, else .config's, else runs/.",
    ),
]
"""As ``RunsDir``, for commands that change runs: of a store as it was given."""
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file of any kind.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Columns = Annotated[
    str, typer.Option(help="Columns to show, a,b; patterns as in config.*,final/*.", autocompletion=completion.columns)
]
SortBy = Annotated[
    str,
    typer.Option(
        "--sort",
        metavar="NAME",
        help="Sort by a column, the best first; -NAME: the other way round.",
        autocompletion=completion.columns,
    ),
]
Statuses = Annotated[
    str,
    typer.Option(
        "--status",
        help="Only runs that are running, finished, failed, crashed, preempted or stopped, a,b.",
        autocompletion=completion.words_of(completion.statuses),
    ),
]
Form = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="table|markdown|csv|latex|json",
        help="How it is printed.",
        autocompletion=completion.words_of(lambda: ("table", "markdown", "csv", "latex", "json"), many=False),
    ),
]
Watch = Annotated[bool, typer.Option("--watch", help="Show it anew every two seconds, until Ctrl-C.")]
SOURCE_HELP = (
    "A run of ours (id, name, project/id, latest, project/latest, directory; a project, a pattern or where:CONDITION: "
    "all of them), a .wandb file, or wandb:entity/project/run, tb:DIR, "
    "mlflow:[uri#]experiment/run, trackio:project/run, swanlab:DIR, neptune:DIR, aim:DIR, dvclive:DIR, json:FILE, "
    "csv:FILE, lake:PLACE[#RUN], hf:FILE, log:FILE, session:FILE."
)
SourceArgument = Annotated[str, typer.Argument(metavar="SOURCE", help=SOURCE_HELP, autocompletion=completion.runs)]
RUNS_HELP = (
    "Ids, names, project/id, latest, project/latest, projects, patterns (lr*), where:CONDITION, or directories: all "
    "runs in them; or any other source, as for `trackers keys`"
)
OneRun = Annotated[
    str, typer.Argument(metavar="RUN", help="A run, as for `trackers keys`.", autocompletion=completion.runs)
]
SourcesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SOURCE…]",
        help="Runs, projects, directories, as for `trackers compare`; default all runs.",
        autocompletion=completion.runs,
    ),
]
RunsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RUN…]", help=f"{RUNS_HELP}; default all.", autocompletion=completion.runs),
]


def refuse(context: typer.Context, why: str, *options: str) -> None:
    """Raise UsageError if one of these options was given, for it would change nothing.

    Args:
        why: what follows the option's name. options: as the command's function calls them.
    """
    from trackers.errors import UsageError

    flags = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    for option in options:
        source = context.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"{flags[option]} {why}")


def harmless_streams() -> None:
    """What a terminal's encoding has no form for is escaped: a name from outside ends no command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


GONE = "the current directory was deleted: change to one that exists"


def describe_error(error: OSError) -> str:
    """What the operating system refused, in one line."""
    if isinstance(error, FileNotFoundError) and not error.filename:
        return GONE
    return f"{error.filename or 'standard output'}: {error.strerror or error}"


def drop_output() -> None:
    """Forget what standard output couldn't take: it would be tried again at the end, with a traceback."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def emit(line: str) -> None:
    """Print a line on what was done for a run. That nobody reads it, or a full disk, ends the command, and is no run's
    failure."""
    try:
        print(line, flush=True)
    except OSError as error:
        drop_output()
        if not isinstance(error, BrokenPipeError):  # nobody is there to read it
            print(f"trackers: {printable(describe_error(error), 4096)}", file=sys.stderr)
        raise typer.Exit(141 if isinstance(error, BrokenPipeError) else 1) from None


def run_program(name: str, program: Callable[[], int]) -> NoReturn:
    """Run a program and exit with its code; an error is one line on stderr, after the program's name.

    Exit codes: 1 for what isn't found, 2 for wrong usage, 130 after Ctrl-C, 141 where nobody reads the output.
    """
    from trackers.errors import NotFound, TrackersError

    harmless_streams()
    try:
        code = program()
        sys.stdout.flush()
    except TrackersError as error:
        from trackers.support.redaction import mask_addresses

        print(f"{name}: {printable(mask_addresses(str(error)), 4096)}", file=sys.stderr)
        code = 1 if isinstance(error, NotFound) else 2
    except ModuleNotFoundError as error:
        from trackers.support.optional import missing

        lacking = missing(error, "this command")
        if lacking is None:
            raise
        print(f"{name}: {lacking}", file=sys.stderr)
        code = 2
    except BrokenPipeError:
        sys.stderr.close()
        code = 141
    except OSError as error:
        print(f"{name}: {printable(describe_error(error), 4096)}", file=sys.stderr)
        drop_output()
        code = 1
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


WHERE = "where:"
"""What begins a reference that is a condition, as ``--where`` of ``trackers best`` takes it."""


class ListedByDefault(TyperGroup):
    """Commands of which ``ls`` may be left out: what is no command is what to list."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["ls", *args])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = args and (args[0] in self.commands or args[0] in ("--help", "-h"))
        return super().parse_args(ctx, args if own else ["ls", *args])


def resolve_conditions(sources: Sequence[str], directory: Path | None) -> list[str]:
    """References and sources, with each ``where:CONDITION`` replaced by the runs that fulfil it, newest first.

    Raises:
        NotFound: none does. UsageError: a condition can't be read.
    """
    references: dict[str, None] = {}
    for source in sources:
        if not source.startswith(WHERE):
            references[source] = None
            continue
        from trackers.analysis.best import RunFilter, unfulfilled
        from trackers.analysis.collect import gather

        text = source.removeprefix(WHERE)
        condition = RunFilter(text)
        gathered = gather([str(runs_root(directory))], directory)
        for reason in gathered.problems:
            print(f"trackers: left out: {printable(reason)}", file=sys.stderr)
        fulfil = [run.source for run in gathered.runs if condition(run)]
        if not fulfil:
            raise unfulfilled(gathered.runs, text)
        references.update(dict.fromkeys(fulfil))
    return list(references)


def is_other_source(name: str, root: Path) -> bool:
    """Whether a name is a source of another kind than our own runs, which may have a colon in their names.

    Raises:
        UsageError: it has a scheme that isn't known, and no run of ours is called so.
    """
    from trackers.errors import NotFound, UsageError
    from trackers.journal.naming import runs_named
    from trackers.readers import registry

    try:
        return registry.parse(name).scheme != registry.OWN
    except UsageError:
        try:
            runs_named(name, root)
        except NotFound:
            pass
        else:
            return False
        raise


def load(source: str, directory: Path | None) -> RunData:
    """One run's data; see :func:`open_runs`."""
    from trackers.readers.run_data import RunData

    reader, runs = open_runs(source, directory, one=True)
    return RunData(reader, runs[0])


def open_runs(source: str, directory: Path | None, *, one: bool = False) -> tuple[Reader, list[SourceRun]]:
    """Open a source, or a condition: its reader and the runs that it names, the newest first.

    Args:
        one: it must name one run.

    Raises:
        NotFound: it names none. UsageError: it can't be understood, or names several where one is needed.
    """
    from trackers.errors import UsageError, examples
    from trackers.readers import registry

    pairs = [registry.open_source(name, directory) for name in resolve_conditions([source], directory)]
    runs = [run for _, named_runs in pairs for run in named_runs]
    if one and len(runs) > 1:
        names = examples((run.source for run in runs), 2)
        raise UsageError(f"{source!r} names {len(runs)} runs: name one, as in {names}")
    return pairs[0][0], runs


def inputs(sources: Sequence[str], directory: Path | None) -> list[str]:
    """What the sources of a command may be as files: themselves, and the directory of a run where they name one."""
    from trackers.errors import TrackersError
    from trackers.journal.naming import find_run

    paths = list(sources)
    for source in sources:
        if not os.path.lexists(source):
            with contextlib.suppress(TrackersError, OSError, ValueError):
                paths.append(str(find_run(source.removeprefix("run:"), runs_root(directory)).path))
    return paths


def mistaken(options: Any) -> list[str]:
    """What no option's own form shows: trackers that don't exist, each with where it was named.

    Args:
        options: as ``configuration.resolve`` gives them.
    """
    from trackers.backends import registry
    from trackers.errors import TrackersError

    faults = []
    for symbol, names in (("TRACKER", registry.parse), ("TRACKER_PYTHON", registry.named_pythons)):
        try:
            for name in names(str(options[symbol])):
                registry.precheck(name)
        except TrackersError as error:
            faults.append(f"{symbol} ({options.source(symbol)}): {error}")
    return faults


def show_number(value: Any) -> str:
    """A metric's value, short; what isn't a number as it is."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        digits = str(value) if value.bit_length() < 1000 else ""  # Python refuses to write out thousands of digits
        return digits if 0 < len(digits) <= 20 else f"{'-' if value < 0 else ''}~2^{value.bit_length() - 1}"
    return f"{value:.5g}" if math.isfinite(value) else str(value)


def show_time(unix: float) -> str:
    """A time of day, local."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix))


def printable(text: str, limit: int = 300) -> str:
    """Names come from outside: no terminal escapes, no line breaks, no markup."""
    from trackers.support.terminal import one_line

    return one_line(text, limit)


WATCH_S = 2.0


def print_table(
    table: TextTable, form: str = "table", *, parts: bool = False, narrower: TextTable | None = None
) -> None:
    """A table in one of the forms of ``trackers.analysis.tables``; on a terminal fitted to its width.

    Args:
        parts: what has no room follows below; otherwise columns are left out, and a line on stderr names them.
        narrower: printed instead where the table has no room.
    """
    from trackers.analysis.tables import render

    if form != "table" or not sys.stdout.isatty():
        sys.stdout.write(render(table, form))
        return
    text, left_out = terminal_table(table, parts=parts, narrower=narrower)
    sys.stdout.write(text)
    sys.stdout.flush()
    if left_out:
        print(f"trackers: {no_room(left_out)}", file=sys.stderr)


def terminal_table(
    table: TextTable, *, parts: bool = False, narrower: TextTable | None = None
) -> tuple[str, list[str]]:
    """A table as wide as the terminal, and the columns that had no room; see :func:`print_table`."""
    from trackers.analysis import fitting

    width = shutil.get_terminal_size().columns
    colored = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    if parts:
        return fitting.in_parts(table, width, colored=colored), []
    fitted = fitting.fitted(table, width, colored=colored)
    if fitted.left_out and narrower is not None:
        fitted = fitting.fitted(narrower, width, colored=colored)
    return fitted.text, fitted.left_out


def no_room(left_out: Sequence[str]) -> str:
    """What says that columns were left out."""
    from trackers.errors import examples

    return f"no room for {examples(left_out, 6)}: --columns chooses; a pipe gets all"


def watch(text: Callable[[], str]) -> None:
    """Show a text on the whole terminal, made anew every two seconds, until Ctrl-C. The last lines are shown.

    Raises:
        UsageError: standard output is no terminal.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from trackers.errors import UsageError

    console = Console()
    if not console.is_terminal:
        raise UsageError("--watch needs a terminal: leave it out where the output goes to a file or a pipe")

    def shown() -> Text:
        lines = text().splitlines()
        room = max(console.height - 1, 2)
        lines = lines if len(lines) <= room else [lines[0], *lines[1 - room :]]
        return Text.from_ansi("\n".join(lines))

    screen = Live(shown(), console=console, auto_refresh=False, screen=True)
    with contextlib.suppress(KeyboardInterrupt), screen:
        while True:
            time.sleep(WATCH_S)
            screen.update(shown(), refresh=True)
