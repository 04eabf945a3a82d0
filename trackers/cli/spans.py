"""``trackers spans``: the spans of a run as trees."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trackers.cli.common import AsJson, RunsDir, SourceArgument, open_runs, print_table, printable, show_time

if TYPE_CHECKING:
    from trackers.analysis.span_tree import Trace
    from trackers.records import Span

TRACES, MOST = 10, 1000
"""Traces that are shown unless more are asked for, and maximum number of spans of one."""


def spans(
    run: SourceArgument = "latest",
    trace: Annotated[str, typer.Option(help="Only this trace, by its id or the first digits of it.")] = "",
    failed: Annotated[bool, typer.Option("--failed", help="Only traces in which a span failed.")] = False,
    count: Annotated[int, typer.Option("-n", min=1, help="Maximum number of traces, the newest.")] = TRACES,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Show the spans of a run (``run.span``, OpenTelemetry) as trees, and their tokens by model.

    Example: trackers spans latest --failed
    """
    from trackers.analysis import span_tree
    from trackers.errors import NotFound
    from trackers.readers.run_data import RunData
    from trackers.records import Span

    reader, runs = open_runs(run, directory, one=True)
    all_traces = span_tree.traces(record for record in RunData(reader, runs[0]).records() if isinstance(record, Span))
    matching = [
        tree for tree in all_traces
        if tree.id.startswith(trace) and (not failed or any(span.status == "error" for span in tree.spans))
    ]  # fmt: skip
    if trace and not matching:
        raise NotFound(f"run {run!r} has no trace {trace!r}: `trackers spans {run}` lists the newest")
    if as_json:
        print(json.dumps([span_tree.to_json(span) for tree in matching for span in tree.spans], indent=2))
        return
    if not matching:
        what = (
            "no trace has a span that failed" if all_traces else "the run has no spans: `with run.span(…)` records them"
        )
        print(f"trackers: {what}", file=sys.stderr)
        return
    for tree in matching[-count:]:
        _print(tree)
    if len(matching) > count:
        print(f"trackers: the newest {count} of {len(matching):,} traces: -n shows more", file=sys.stderr)
    _print_sums([span for tree in matching for span in tree.spans], len(matching))


def _print(trace: Trace) -> None:
    from trackers.analysis import span_tree
    from trackers.analysis.tables import TextTable

    print(f"{show_time(trace.began)}  trace {printable(trace.id, 32)}")
    rows = []
    for label, (_, span) in list(zip(span_tree.labels(trace), trace.rows, strict=True))[:MOST]:
        rows.append([label, *(_cells(span) if span is not None else ["", "", "", ""])])
    print_table(TextTable(["span", "kind", "time", "tokens", "error"], rows, texts=2, more_texts=frozenset({4})))
    if len(trace.rows) > MOST:
        print(f"and {len(trace.rows) - MOST:,} more spans: --json has them")
    print()


def _cells(span: Span) -> list[Any]:
    from trackers.formats import gen_ai

    used = gen_ai.tokens(span.attributes)
    tokens = f"{used.get(gen_ai.INPUT, 0):,} + {used.get(gen_ai.OUTPUT, 0):,}" if used else ""
    return [span.type, _time(span.seconds), tokens, printable(span.error, 120) if span.status == "error" else ""]


def _time(seconds: float) -> str:
    seconds = max(0.0, seconds)
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 1000 * size else f"{seconds / size:,.0f} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def _print_sums(shown: list[Span], count: int) -> None:
    from trackers.analysis import span_tree
    from trackers.formats import gen_ai

    failed = sum(span.status == "error" for span in shown)
    traces, spans = (
        f"{size:,} {word}{'' if size == 1 else 's'}" for size, word in ((count, "trace"), (len(shown), "span"))
    )
    print(f"{traces}, {spans}, {failed:,} failed")
    for model, used in span_tree.tokens(shown).items():
        name = printable(model, 80) or "a model without a name"
        print(f"{name}: {used.get(gen_ai.INPUT, 0):,} input and {used.get(gen_ai.OUTPUT, 0):,} output tokens")
