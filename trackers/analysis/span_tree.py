"""Spans of a run as trees, one for each trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from trackers.formats import gen_ai
from trackers.records import Span, name_floats

DEEPEST = 30
"""Spans nested more deeply are shown as if they weren't."""
LOST = "(a span that hasn't ended)"


class Trace(NamedTuple):
    """One trace. rows: its spans with their depth, each before what it contains, in the order of their beginnings; a
    span whose parent isn't there has the depth 1 below None, which stands for it."""

    id: str
    began: float
    seconds: float
    rows: list[tuple[int, Span | None]]

    @property
    def spans(self) -> list[Span]:
        """Those that are there."""
        return [span for _, span in self.rows if span is not None]


def traces(spans: Iterable[Span]) -> list[Trace]:
    """All traces, in the order of their beginnings. A span that was recorded twice is there once."""
    by_trace: dict[str, dict[str, Span]] = {}
    for span in spans:
        by_trace.setdefault(span.trace, {})[span.span] = span
    entries = [_trace(name, list(inside.values())) for name, inside in by_trace.items()]
    return sorted(entries, key=lambda trace: trace.began)


def _trace(name: str, spans: list[Span]) -> Trace:
    spans.sort(key=lambda span: (span.start, -span.time))
    known = {span.span for span in spans}
    children: dict[str, list[Span]] = {}
    for span in spans:
        children.setdefault(span.parent if span.parent in known and span.parent != span.span else "", []).append(span)
    roots = [span for span in children.get("", []) if not span.parent]
    orphans = [span for span in children.get("", []) if span.parent]
    rows: list[tuple[int, Span | None]] = list(_below(roots, children, 0))
    if orphans:
        rows += [(0, None), *_below(orphans, children, 1)]
    shown = {span.span for _, span in rows if span is not None}
    around = [span for span in spans if span.span not in shown]  # each is the other's parent: no program wrote that
    rows += [(0, span) for span in around]
    began, end = min(span.start for span in spans), max(span.time for span in spans)
    return Trace(name, began, max(0.0, end - began), rows)


def _below(spans: Sequence[Span], children: dict[str, list[Span]], depth: int) -> Iterator[tuple[int, Span]]:
    waiting = [(depth, span) for span in reversed(spans)]
    while waiting:
        at, span = waiting.pop()
        yield min(at, DEEPEST), span
        waiting.extend((at + 1, child) for child in reversed(children.get(span.span, [])))


def labels(trace: Trace) -> list[str]:
    """A text for each row: the lines of the tree, and the span's name."""
    texts: list[str] = []
    below: set[int] = set()  # the depths at which the tree goes on, seen from its end
    for depth, span in reversed(trace.rows):
        below = {level for level in below if level <= depth}
        signs = ["│  " if level in below else "   " for level in range(1, depth)]
        if depth:
            signs.append("├─ " if depth in below else "└─ ")
        below.add(depth)
        texts.append("".join(signs) + (LOST if span is None else span.name))
    return texts[::-1]


def tokens(spans: Iterable[Span]) -> dict[str, dict[str, int]]:
    """Tokens that went in and came out, by model ("" where none is said)."""
    counts: dict[str, dict[str, int]] = {}
    for span in spans:
        for name, number in gen_ai.tokens(span.attributes).items():
            sums = counts.setdefault(gen_ai.model(span.attributes), {})
            sums[name] = sums.get(name, 0) + number
    return counts


def to_json(span: Span) -> dict[str, Any]:
    """JSON values."""
    return dict(
        name_floats(
            {
                "trace": span.trace, "span": span.span, "parent": span.parent or None, "name": span.name,
                "kind": span.type, "step": span.step, "start": span.start, "seconds": span.seconds,
                "status": span.status, "error": span.error or None, "inputs": span.inputs, "outputs": span.outputs,
                "attributes": span.attributes,
            }
        )
    )  # fmt: skip
