"""``compare_results``: comparison of the benchmark results below a directory."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from trackers.analysis import report as benchmark_report
from trackers.analysis.benchmark_results import PATTERN, Result, results
from trackers.analysis.tables import TextTable, plain, render
from trackers.cli.scripts import called, speaker
from trackers.errors import MissingPackage, UsageError
from trackers.support import atomic_write

NAME = "compare_results"
REPORT, PLOT = "comparison_report.md", "comparison_plot.png"


def main(arguments: Sequence[str]) -> int:
    """Run the program.

    Raises:
        NotFound: no such directory, or no result in it. UsageError: the report or the plot can't be written.
        MissingPackage: a plot is asked for, and matplotlib isn't installed.
    """
    options = _parser().parse_args(arguments)
    read = [str(options.results_dir / "**" / PATTERN)]
    report, plot = options.results_dir / REPORT, options.results_dir / PLOT
    for chosen, default in ((options.output_report, report), (options.output_plot, plot)):
        ours = atomic_write.drawing if chosen else lambda path, head: True  # the documented names are this program's
        atomic_write.check(chosen or default, inputs=read, ours=ours, force=options.force)
    report, plot = options.output_report or report, options.output_plot or plot
    if report.resolve() == plot.resolve():
        raise UsageError(f"{report}: the report and the plot can't be one file")
    loaded, problems = results(options.results_dir)
    for text in [*(f"left out: {text}" for text in problems), *benchmark_report.warnings(loaded)]:
        print(f"{speaker(NAME)}: {plain(text)}", file=sys.stderr)
    print(_table(loaded))
    first = benchmark_report.winner(loaded)
    print(f"Winner: {plain(first.result.name) if first.result else 'none'}. {plain(first.reason)}")
    text = benchmark_report.benchmark_markdown(loaded, when=time.strftime("%Y-%m-%d %H:%M:%S"))
    atomic_write.write_text(report, f"{text}\n<!-- {atomic_write.SIGNATURE} -->\n")
    print(f"Report saved to {report}")
    try:
        print(f"Plot saved to {_plot(loaded, plot)}")
    except MissingPackage as error:
        if options.output_plot is not None:
            raise
        print(f"{speaker(NAME)}: no plot: {error}", file=sys.stderr)
    return 0


def _plot(loaded: Sequence[Result], path: Path) -> Path:
    from trackers.plotting import matplotlib_figure, presets

    matplotlib_figure.save(presets.of_results(loaded), path)
    return path


def _table(loaded: Sequence[Result]) -> str:
    headers = ["result", "GPU", "GPUs", "tokens/s/GPU", "tokens/s", "step s", "peak GB"]
    rows = [
        [result.name, result.gpu or result.platform, result.gpus, result.tokens_per_s_per_gpu, result.tokens_per_s,
         result.step_s, result.memory_peak_gb]
        for result in loaded
    ]  # fmt: skip
    return render(TextTable(headers, rows, texts=2), "table")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=called(NAME),
        description="Compare benchmark results (benchmark_*.json), of CUDA and ROCm or any others.",
        epilog=f"Example: {called(NAME)} --results-dir benchmark_results",
    )
    add = parser.add_argument
    add("--results-dir", type=Path, default=Path("benchmark_results"), help="directory of results and its subfolders")
    add("--output-report", type=Path, help=f"Markdown file; default {REPORT} there")
    add("--force", action="store_true", help="replace existing files of any kind")
    add("--output-plot", type=Path, help=f"picture (.png, .svg, .pdf); default {PLOT} there")
    return parser
