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
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, TypeVar

from trackers.errors import reason
from trackers.formats.json_values import text, to_json_values
from trackers.journal.span_table import TABLE, SpanTable, add_earlier, as_text
from trackers.media import record as media_record
from trackers.records import MAX_STEP, Record, Span
from trackers.support.interruption import pass_on, suppress
from trackers.support.redaction import mask, mask_source
from trackers.training.recorder import Recorder
from trackers.values.coerce import short_repr

F = TypeVar("F", bound=Callable[..., Any])

LONGEST = 65_536
"""Maximum length of inputs, outputs and each attribute as JSON, in characters; what is longer is cut, as text."""
NAME_LONGEST = 250
ERROR_LONGEST = 10_000
ATTRIBUTES = 128
"""Maximum number of attributes of a span."""
YIELDED = 10_000
"""Maximum number of what a generator gives that is kept as its outputs."""

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
        self.name, self.kind, self.inputs = name, kind, inputs
        self.outputs: Any = None
        self._spans = spans
        self._attributes: dict[Any, Any] = {}
        self.set({} if attributes is None else attributes)
        self._given = dict(self._attributes)
        self._error = ""
        self._began: float | None = None
        self._ids: tuple[str, str, str] = ("", "", "")
        self._token: Token[LiveSpan | None] | None = None
        self._around: LiveSpan | None = None
        self._over = False

    def set(self, *attributes: Mapping[str, Any], **more: Any) -> LiveSpan:
        """Add attributes, as mappings or by keyword; those of OpenTelemetry's conventions for language models
        (``gen_ai.usage.input_tokens``) are summed up in the run's results. Never raises."""
        for mapping in (*attributes, more):
            with suppress(Exception):
                self._attributes.update(mapping)
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
        if self._begin():
            self._token = _current.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._token is None:
            return
        try:
            _current.reset(self._token)
        except ValueError as elsewhere:  # it ends in another context, as generators and callbacks may
            pass_on(elsewhere)
            with suppress(Exception):
                _current.set(None)
        self._token = None
        self._end(error)

    async def __aenter__(self) -> LiveSpan:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def _begin(self) -> bool:
        """Begin it, below the span around; False if it has begun, or records nothing."""
        if self._spans is None or self._began is not None:
            return False
        around = _current.get()
        while around is not None and (around._over or around._spans is not self._spans):
            around = around._around
        self._around = around
        trace = around._ids[0] if around is not None else os.urandom(16).hex()
        self._ids = trace, os.urandom(8).hex(), around._ids[1] if around is not None else ""
        self._began = self._spans.now()
        return True

    def _end(self, error: BaseException | None) -> None:
        if self._spans is None or self._began is None or self._over:
            return
        self._over = True
        if self._around is not None and self._around._over:  # else chains of spans that ended would be kept
            self._around = self._around._around
        if error is not None and not self._error:
            self._error = reason(error) if not isinstance(error, GeneratorExit) else ""
        self._spans.write_ended(self, self._began)

    def __call__(self, function: F) -> F:
        """Decorate a function: each call is a span of its own, with its arguments and its result.

        Of a coroutine function the span ends with the coroutine, of a generator when it is exhausted or closed; its
        outputs are what it gave, texts as one text.
        """
        if isinstance(function, (staticmethod, classmethod)):
            return type(function)(self(function.__func__))
        if not callable(function):
            if self._spans is not None:
                self._spans.problem(f"span: {short_repr(function)} is no function: it stays as it is")
            return function

        def made(arguments: tuple[Any, ...], more: dict[str, Any]) -> LiveSpan:
            inputs = self.inputs if self.inputs is not None else _arguments(function, arguments, more)
            name = self.name or getattr(function, "__qualname__", None) or type(function).__name__
            return LiveSpan(self._spans, name, inputs, self.kind, self._given)

        wrap = next((wrap for is_of_kind, wrap in _WRAPPERS if is_of_kind(function)), _called)
        return wrap(function, made)  # type: ignore[return-value]


Made = Callable[["tuple[Any, ...]", "dict[str, Any]"], LiveSpan]
"""Makes the span of a call with these arguments."""


def _called(function: Callable[..., Any], made: Made) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*arguments: Any, **more: Any) -> Any:
        with made(arguments, more) as span:
            span.outputs = function(*arguments, **more)
            return span.outputs

    return called


def _awaited(function: Callable[..., Any], made: Made) -> Callable[..., Any]:
    @functools.wraps(function)
    async def waited(*arguments: Any, **more: Any) -> Any:
        with made(arguments, more) as span:
            span.outputs = await function(*arguments, **more)
            return span.outputs

    return waited


def _yielding(function: Callable[..., Any], made: Made) -> Callable[..., Any]:
    @functools.wraps(function)
    def yielded(*arguments: Any, **more: Any) -> Any:
        steps = _Steps(made(arguments, more))
        with steps.ending():
            inner = function(*arguments, **more)
            step: Callable[[Any], Any] = inner.send
            value: Any = None
            while True:
                try:
                    with steps.running():
                        item = step(value)
                except StopIteration as end:
                    return end.value
                steps.add_item(item)
                try:
                    step, value = inner.send, (yield item)
                except GeneratorExit:
                    with steps.running():
                        inner.close()
                    raise
                except BaseException as error:
                    step, value = inner.throw, error

    return yielded


def _yielding_later(function: Callable[..., Any], made: Made) -> Callable[..., Any]:
    @functools.wraps(function)
    async def given(*arguments: Any, **more: Any) -> Any:
        steps = _Steps(made(arguments, more))
        with steps.ending():
            inner = function(*arguments, **more)
            step: Callable[[Any], Any] = inner.asend
            value: Any = None
            while True:
                try:
                    with steps.running():
                        item = await step(value)
                except StopAsyncIteration:
                    return
                steps.add_item(item)
                try:
                    step, value = inner.asend, (yield item)
                except GeneratorExit:
                    with steps.running():
                        await inner.aclose()
                    raise
                except BaseException as error:
                    step, value = inner.athrow, error

    return given


_WRAPPERS: tuple[tuple[Callable[[Any], bool], Callable[..., Callable[..., Any]]], ...] = (
    (inspect.iscoroutinefunction, _awaited), (inspect.isgeneratorfunction, _yielding),
    (inspect.isasyncgenfunction, _yielding_later),
)  # fmt: skip
"""How a function is wrapped whose call isn't over when it returns."""


class _Steps:
    """A generator's span: around only while the generator runs, not while whoever iterates does."""

    def __init__(self, span: LiveSpan) -> None:
        self._span = span
        self._items: list[Any] = []
        self._room = [LONGEST]
        self._texts = True

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """The whole life of the generator."""
        span = self._span
        span._begin()
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            if span.outputs is None:
                span.outputs = "".join(self._items) if self._items and self._texts else self._items
            span._end(error)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """One step of it."""
        if self._span._spans is None:
            yield
            return
        token = _current.set(self._span)
        try:
            yield
        finally:
            with suppress(ValueError):  # an asynchronous one that is closed elsewhere
                _current.reset(token)

    def add_item(self, item: Any) -> None:
        """Keep what it gave, described: a reference to a tensor would hold its memory."""
        if self._span._spans is not None and self._room[0] > 0 and len(self._items) < YIELDED:
            with suppress(Exception):
                self._items.append(to_json_values(_described(item, self._room)))
                self._texts = self._texts and isinstance(item, str)


def span_of(spans: Spans | None, name: Any, inputs: Any, kind: str, attributes: Mapping[str, Any] | None) -> LiveSpan:
    """What ``run.span`` gives: a span, and where it stands above a function without parentheses, that function
    decorated."""
    if spans is not None and attributes is not None and not isinstance(attributes, Mapping):
        spans.problem(f"span: attributes {short_repr(attributes)} are left out: give a mapping")
    if callable(name) or isinstance(name, (staticmethod, classmethod)):
        decorated: Any = LiveSpan(spans, None, inputs, kind, attributes)(name)
        return decorated  # type: ignore[no-any-return]
    return LiveSpan(spans, name, inputs, kind, attributes)


class Spans:
    """The spans of a run.

    Args:
        recorder: the run's.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.now = recorder.now
        self.problem = recorder.problem
        self._table = SpanTable()
        self._earlier: SpanTable | None = None

    def write_ended(self, span: LiveSpan, began: float) -> None:
        """Write a span that has ended. Never raises."""
        trace, own, parent = span._ids
        self._recorder.guard("span", self._write, span, began, trace, own, parent)

    def _write(self, span: LiveSpan, began: float, trace: str, own: str, parent: str) -> None:
        step = max(self._recorder.step, 0)
        name = mask_source(text("span" if span.name is None else span.name))[:NAME_LONGEST]
        record = Span(
            step=min(step, MAX_STEP), time=self.now(), began=began, name=name,
            type=text(span.kind)[:NAME_LONGEST], trace=trace, span=own, parent=parent,
            status="error" if span._error else "ok", error=mask_source(span._error)[:ERROR_LONGEST],
            inputs=bounded(span.inputs, "inputs"), outputs=bounded(span.outputs, "outputs"),
            attributes=attributes_of(span._attributes),
        )  # fmt: skip
        self.record(record)

    def record(self, span: Span) -> None:
        """Write a span, and count what it says."""
        self._recorder.record(span)
        self._table.add(span)

    def finish(self) -> None:
        """Log the sums, and the table for trackers that have no spans. Never raises."""
        if self._table.count:
            self._recorder.guard("span", self._sum_up)

    def _sum_up(self) -> None:
        recorder, table = self._recorder, self._table
        if self._earlier is None:
            earlier = SpanTable()
            with suppress(OSError):
                add_earlier(earlier, recorder.run, recorder.run.attempt())
            self._earlier = earlier
        results = table.results()
        for name, number in self._earlier.results().items():
            results[name] = results.get(name, 0) + number
        recorder.summarize_once("sums of spans", {**results})
        if table.count > len(table.rows):
            self.problem(f"the table {TABLE} has the first {len(table.rows):,} of {table.count:,} spans")
        recorder.write_once("spans", self._table_record)

    def _table_record(self) -> Record:
        recorder = self._recorder
        return media_record(TABLE, self._table.table(), max(recorder.step, 0), self.now(), recorder.store())


def bounded(value: Any, name: str = "") -> Any:
    """A value as JSON values, secrets masked; as a text, cut, where it is longer than :data:`LONGEST`."""
    if value is None:
        return None
    room = LONGEST if isinstance(value, str) else LONGEST - 256  # for what surrounds a text
    masked = mask(to_json_values(_described(value, [room])), name)
    encoded = as_text(masked)
    return masked if len(encoded) <= LONGEST else encoded[: LONGEST - 1] + "…"


def attributes_of(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """Attributes by name, the first :data:`ATTRIBUTES` of them."""
    listed = list(attributes.items())[:ATTRIBUTES]
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
    if isinstance(value, (int, float)) or depth > 16:  # it may hold itself
        return value
    if isinstance(value, Mapping):
        described: dict[Any, Any] = {}
        for key, item in list(value.items()):
            if room[0] <= 0:
                described["…"] = f"{len(value) - len(described):,} more"
                break
            described[key] = _described(item, room, depth + 1)
        return described
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
    except (TypeError, ValueError) as error:
        pass_on(error)
        return [*arguments, more] if more else list(arguments)
    return {name: value for name, value in bound.items() if name not in ("self", "cls")}
