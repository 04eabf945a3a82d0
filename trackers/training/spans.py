"""Spans: calls of an evaluation or of a language model, timed, nested, with what went in and came out.

A span is written when it ends, as one record; nothing is kept but sums and the rows of a table that is logged at the
end of the run. The span around is known by a context variable: threads that are started with a copy of the context, and
tasks of asyncio, have it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from trackers.errors import reason
from trackers.formats import gen_ai
from trackers.formats.json_values import plain, text
from trackers.records import MAX_STEP, Span, final_name, name_floats
from trackers.support.redaction import mask, mask_source
from trackers.training.recorder import Recorder

F = TypeVar("F", bound=Callable[..., Any])

LONGEST = 65_536
"""Maximum length of inputs, outputs and each attribute as JSON, in characters; what is longer is cut, as text."""
NAME_LONGEST = 250
ERROR_LONGEST = 10_000
ATTRIBUTES = 128
"""Maximum number of attributes of a span."""
ROWS = 10_000
"""Maximum number of spans in the table that is logged at the end."""
CELL = 2000
"""Maximum length of a text in that table, in characters."""
TABLE = "spans"
COLUMNS = ("trace", "span", "parent", "name", "kind", "step", "start", "seconds", "status", "inputs", "outputs",
           "error", "attributes")  # fmt: skip

_current: ContextVar[LiveSpan | None] = ContextVar("trackers_span", default=None)


class LiveSpan:
    """A span that is on. Made by ``run.span``; used as a context manager, or as a decorator of functions.

    Attributes:
        inputs, outputs: what went in and came out: any values that JSON can hold; others are described.
        name, kind: may be changed until it ends.
    """

    def __init__(
        self, spans: Spans | None, name: str | None, inputs: Any, kind: str, attributes: Mapping[str, Any] | None
    ) -> None:
        self.name, self.kind, self.inputs, self.outputs = name, kind, inputs, None
        self._spans = spans
        self._attributes: dict[Any, Any] = {}
        self.set({} if attributes is None else attributes)
        self._given = dict(self._attributes)
        self._error = ""
        self._began: float | None = None
        self._ids: tuple[str, str, str] = ("", "", "")
        self._token: Token[LiveSpan | None] | None = None

    def set(self, *attributes: Mapping[str, Any], **more: Any) -> LiveSpan:
        """Add attributes, as mappings or by keyword; those of OpenTelemetry's conventions for language models
        (``gen_ai.usage.input_tokens``) are summed up in the run's results. Never raises."""
        for one in (*attributes, more):
            with contextlib.suppress(Exception):
                self._attributes.update(one)
        return self

    def fail(self, error: object) -> LiveSpan:
        """Mark it as failed, with the reason, though no exception leaves the block."""
        self._error = reason(error) if isinstance(error, BaseException) else text(error)
        return self

    @property
    def trace_id(self) -> str:
        """The trace's id, 32 hexadecimal digits; "" before it begins."""
        return self._ids[0]

    @property
    def span_id(self) -> str:
        """Its own id, 16 hexadecimal digits; "" before it begins."""
        return self._ids[1]

    def __enter__(self) -> LiveSpan:
        if self._spans is not None and self._began is None:
            around = _current.get()
            if around is not None and around._spans is not self._spans:
                around = None
            trace = around._ids[0] if around is not None else os.urandom(16).hex()
            self._ids = trace, os.urandom(8).hex(), around._ids[1] if around is not None else ""
            self._began = self._spans.now()
            self._token = _current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        spans, began = self._spans, self._began
        if spans is None or began is None or self._token is None:
            return
        try:
            _current.reset(self._token)
        except ValueError:  # it ends in another context, as generators and callbacks may
            with contextlib.suppress(Exception):
                _current.set(None)
        self._token = None
        if error is not None and not self._error:
            self._error = reason(error) if not isinstance(error, GeneratorExit) else ""
        spans.ended(self, began)

    def __call__(self, function: F) -> F:
        """Decorate a function: each call is a span of its own, with its arguments and its result; also a coroutine
        function."""

        def made(arguments: tuple[Any, ...], more: dict[str, Any]) -> LiveSpan:
            inputs = self.inputs if self.inputs is not None else _arguments(function, arguments, more)
            name = self.name or getattr(function, "__qualname__", None) or type(function).__name__
            return LiveSpan(self._spans, name, inputs, self.kind, self._given)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def waited(*arguments: Any, **more: Any) -> Any:
                with made(arguments, more) as span:
                    span.outputs = await function(*arguments, **more)
                    return span.outputs

            return waited  # type: ignore[return-value]

        @functools.wraps(function)
        def called(*arguments: Any, **more: Any) -> Any:
            with made(arguments, more) as span:
                span.outputs = function(*arguments, **more)
                return span.outputs

        return called  # type: ignore[return-value]


class Spans:
    """The spans of a run.

    Args:
        recorder: the run's.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.now = recorder.now
        self._rows: list[list[Any]] = []
        self._count = 0
        self._tokens: dict[str, int] = {}

    def begin(self, name: str | None, inputs: Any, kind: str, attributes: Mapping[str, Any] | None) -> LiveSpan:
        """A span that begins with its block."""
        return LiveSpan(self, name, inputs, kind, attributes)

    def ended(self, span: LiveSpan, began: float) -> None:
        """Write a span that has ended. Never raises."""
        trace, own, parent = span._ids
        self._recorder.guard("span", self._write, span, began, trace, own, parent)

    def _write(self, span: LiveSpan, began: float, trace: str, own: str, parent: str) -> None:
        step = max(self._recorder.step, 0)
        name = text("span" if span.name is None else span.name)[:NAME_LONGEST]
        found = Span(
            step=min(step, MAX_STEP), time=self.now(), began=began, name=name,
            type=text(span.kind)[:NAME_LONGEST], trace=trace, span=own, parent=parent,
            status="error" if span._error else "ok", error=mask_source(span._error)[:ERROR_LONGEST],
            inputs=bounded(span.inputs, "inputs"), outputs=bounded(span.outputs, "outputs"),
            attributes=attributes_of(span._attributes),
        )  # fmt: skip
        self.record(found)

    def record(self, span: Span) -> None:
        """Write a span, and count what it says."""
        self._recorder.record(span)
        self._count += 1
        for name, number in gen_ai.tokens(span.attributes).items():
            self._tokens[name] = self._tokens.get(name, 0) + number
        if len(self._rows) < ROWS:
            self._rows.append(_row(span))

    def finish(self) -> None:
        """Log the sums, and the table for trackers that have no spans. Never raises."""
        if self._count:
            self._recorder.guard("span", self._sum_up)

    def _sum_up(self) -> None:
        from trackers.media import Table

        if self._tokens:
            self._recorder.summarize({final_name(name): number for name, number in self._tokens.items()})
        rows, self._rows = self._rows, []
        if self._count > len(rows):
            self._recorder.problem(f"the table {TABLE} has the first {len(rows):,} of {self._count:,} spans")
        self._count, self._tokens = 0, {}
        table = Table(columns=list(COLUMNS), data=rows)
        self._recorder.log({TABLE: table}, max(self._recorder.step, 0), True)


def bounded(value: Any, name: str = "") -> Any:
    """A value as JSON values, secrets masked; as a text, cut, where it is longer than :data:`LONGEST`."""
    if value is None:
        return None
    room = LONGEST if isinstance(value, str) else LONGEST - 256  # for what surrounds a text
    found = mask(plain(_described(value, [room])), name)
    written = _written(found)
    return found if len(written) <= LONGEST else written[: LONGEST - 1] + "…"


def attributes_of(given: Mapping[Any, Any]) -> dict[str, Any]:
    """Attributes by name, the first :data:`ATTRIBUTES` of them."""
    listed = list(given.items())[:ATTRIBUTES]
    return {text(name)[:NAME_LONGEST]: bounded(value, text(name)) for name, value in listed}


def _described(value: Any, room: list[int], depth: int = 0) -> Any:
    """The value, cut where there is no room, its tensors described: to read one may wait for an accelerator.

    Args:
        room: how many characters there are left; what is cut is neither written nor searched for secrets.
    """
    room[0] -= 1
    if isinstance(value, (str, bytes, bytearray)):
        left, whole = max(room[0] + 1, 1), len(value)
        room[0] -= whole
        if isinstance(value, str):
            return value if whole <= left else value[: left - 1] + "…"
        return value if whole <= left else f"<{whole:,} bytes>"
    if isinstance(value, (int, float)) or depth > 16:
        return value
    if isinstance(value, Mapping):
        found: dict[Any, Any] = {}
        for key, item in list(value.items()):
            if room[0] <= 0:
                found["…"] = f"{len(value) - len(found):,} more"
                break
            found[key] = _described(item, room, depth + 1)
        return found
    if isinstance(value, (list, tuple)):
        items: list[Any] = []
        for item in value:
            if room[0] <= 0:
                items.append(f"… {len(value) - len(items):,} more")
                break
            items.append(_described(item, room, depth + 1))
        return items
    if isinstance(value, (set, frozenset)):
        return value if len(value) <= room[0] else f"<a set of {len(value):,}>"
    kind = type(value)
    if hasattr(kind, "shape") and hasattr(kind, "dtype"):
        return f"<{kind.__name__} {value.dtype} {list(value.shape)}>"
    return value


def _arguments(function: Any, arguments: tuple[Any, ...], more: dict[str, Any]) -> Any:
    try:
        bound = inspect.signature(function).bind(*arguments, **more).arguments
    except (TypeError, ValueError):
        return [*arguments, more] if more else list(arguments)
    return {name: value for name, value in bound.items() if name not in ("self", "cls")}


def _row(span: Span) -> list[Any]:
    cells = (span.inputs, span.outputs, span.error or None, span.attributes or None)
    inputs, outputs, error, attributes = (None if value is None else _written(value)[:CELL] for value in cells)
    return [span.trace, span.span, span.parent, span.name, span.type, span.step, span.start, span.seconds,
            span.status, inputs, outputs, error, attributes]  # fmt: skip


def _written(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(name_floats(value)).decode()
