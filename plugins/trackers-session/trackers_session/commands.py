"""``trackers benchmark sessions``: analysis of session logs below a directory; ``analyze_logs.py`` of a checkout."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from trackers.cli.scripts import called, speaker
from trackers.support import atomic_write
from trackers_session import sessions
from trackers_session.reader import END

NAME, COMMAND = "analyze_logs", "benchmark sessions"
REPORT, PLOT = "session_report.txt", "session_plot.png"

_PASSED: dict[str, Any] = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

app = typer.Typer(add_completion=False)


@app.command(context_settings=_PASSED)
def analyze(context: typer.Context) -> None:
    """Analyze session logs: one GPU against several."""
    raise typer.Exit(main(context.args))


def main(arguments: Sequence[str]) -> int:
    """Run the program.

    Raises:
        NotFound: no such directory, or no session in it. UsageError: the report can't be written.
    """
    options = _parser().parse_args(arguments)
    for name in [REPORT] * options.report + [PLOT] * options.plot:
        read = [str(options.log_dir / "**" / f"*{END}")]
        atomic_write.check(options.log_dir / name, inputs=read, ours=lambda path, head: True)
    summaries, problems = sessions.sessions(options.log_dir, options.session_id)
    for text in problems:
        print(f"{speaker(NAME)}: left out: {text}", file=sys.stderr)
    asked = options.compare or options.communication or options.report or options.plot
    parts = []
    if options.session_id or not asked:
        parts.append("\n\n".join("\n".join(sessions.overview(session)) for session in summaries))
    if options.compare or (not asked and not options.session_id and len(summaries) > 1):
        parts.append("\n".join(sessions.comparison(summaries)))
    if options.communication or (options.session_id and not asked):
        parts.append("\n".join(sessions.communication(summaries)))
    if parts:
        print("\n\n".join(parts))
    if options.report:
        print(f"Report saved to {_report(options.log_dir, summaries)}")
    if options.plot:
        print(f"Plot saved to {_plot(options.log_dir, summaries)}")
    return 0


def _report(directory: Path, summaries: list[sessions.SessionSummary]) -> Path:
    path = directory / REPORT
    atomic_write.write_text(path, "\n".join([*sessions.both(summaries), ""]))
    return path


def _plot(directory: Path, summaries: list[sessions.SessionSummary]) -> Path:
    from trackers.analysis.curves import open_runs
    from trackers.plotting import matplotlib_figure, presets

    path = directory / PLOT
    matplotlib_figure.save(
        presets.sessions(open_runs([session.facts.source for session in summaries]), presets.PlotOptions()), path
    )
    return path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=called(NAME, COMMAND),
        description="Analyze the sessions of multi-GPU training below a directory.",
        epilog=f"Example: {called(NAME, COMMAND)} --compare",
    )
    add = parser.add_argument
    add("--log-dir", type=Path, default=Path("logs"), help="directory of sessions; default ./logs")
    add("--session-id", default="", help="only this session")
    add("--compare", action="store_true", help="one GPU against several: speed-up and efficiency")
    add("--communication", action="store_true", help="communication between GPUs")
    add("--report", action="store_true", help=f"write both to {REPORT} in the directory")
    add("--plot", action="store_true", help=f"draw losses, learning rates and GPUs' use into {PLOT} there")
    return parser
