"""``run.span``: calls timed and nested, with what goes in and comes out; kept when the block ends, never in the way."""

from __future__ import annotations

import asyncio
import contextvars
import json
import math
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import trackers
from trackers.formats import gen_ai
from trackers.journal import span_table
from trackers.records import Media, Span, Summary, decode
from trackers.training import spans as work
from trackers.training.disabled import NullRun
from trackers.training.run import Run


def written(run: Run) -> list[Span]:
    """The spans that are in the journal now."""
    lines = (Path(run.path) / "streams/rank-0.1.jsonl").read_bytes().splitlines()
    return [record for line in lines if isinstance(record := decode(line), Span)]


def by_name(run: Run) -> dict[str, Span]:
    """The same by name."""
    return {span.name: span for span in written(run)}


def test_span_is_in_the_journal_when_its_block_ends(run: Run) -> None:
    """With times, the step, inputs, outputs, attributes; a span within another one is its child."""
    run.log({"loss": 1.0}, step=7)
    with run.span("answer", inputs={"question": "2+2"}, kind="agent", attributes={"user": "ada"}) as outer:
        with run.span("model", kind="llm") as inner:
            inner.set({"gen_ai.usage.input_tokens": 5}, temperature=0.5)
        assert [span.name for span in written(run)] == ["model"]
        outer.outputs = ["4"]
    model, answer = written(run)
    assert (answer.step, answer.parent, answer.type, answer.status) == (7, "", "agent", "ok")
    assert (answer.inputs, answer.outputs, answer.attributes) == ({"question": "2+2"}, ["4"], {"user": "ada"})
    assert (model.trace, model.parent) == (answer.trace, answer.span)
    assert model.attributes == {"gen_ai.usage.input_tokens": 5, "temperature": 0.5}
    assert (len(model.trace), len(model.span)) == (32, 16)
    assert (outer.trace_id, outer.span_id) == (answer.trace, answer.span)
    assert answer.began <= model.began <= model.time <= answer.time
    with run.span("next"):
        pass
    assert by_name(run)["next"].trace != answer.trace


def test_exception_is_recorded_and_goes_on(run: Run) -> None:
    """Its type and message, secrets masked; a failure that raises nothing can be said."""
    with pytest.raises(ValueError, match="no such"), run.span("outer"), run.span("boom"):
        raise ValueError("no such https://ada:password@host/")
    with run.span("refused") as span:
        span.fail("the answer was empty")
    found = by_name(run)
    assert (found["boom"].status, found["outer"].status) == ("error", "error")
    assert found["boom"].error.startswith("ValueError: no such")
    assert "password" not in found["boom"].error
    assert (found["refused"].status, found["refused"].error) == ("error", "the answer was empty")


def test_function_is_decorated(run: Run) -> None:
    """Each call is a span, by the function's name, with its arguments and its result; recursion nests."""

    @run.span(kind="tool")
    def down(count: int, *more: int, by: int = 1) -> int:
        """Count."""
        return down(count - by) if count > 0 else 0

    assert down(2, by=2) == 0
    assert down.__doc__ == "Count."
    inner, outer = written(run)
    assert outer.name == inner.name == "test_function_is_decorated.<locals>.down"
    assert (outer.inputs, outer.outputs, outer.type) == ({"count": 2, "by": 2}, 0, "tool")
    assert inner.parent == outer.span


def test_tasks_and_threads_have_the_span_around(run: Run) -> None:
    """Tasks of asyncio each their own; a thread by a copy of the context, otherwise a trace of its own."""

    @run.span("call")
    async def call(number: int) -> int:
        with run.span(f"inner {number}"):
            await asyncio.sleep(0)
            return number

    async def main() -> None:
        with run.span("all"):
            assert await asyncio.gather(*(call(number) for number in range(3))) == [0, 1, 2]

    def work_in(name: str) -> None:
        with run.span(name):
            pass

    asyncio.run(main())
    calls = {span.span: span for span in written(run) if span.name == "call"}
    whole = by_name(run)
    assert {span.parent for span in calls.values()} == {whole["all"].span}
    assert len(calls) == 3
    for number in range(3):
        assert calls[whole[f"inner {number}"].parent].inputs == {"number": number}
    with run.span("main"):
        context = contextvars.copy_context()
        threads = [threading.Thread(target=context.run, args=(work_in, "with")),
                   threading.Thread(target=work_in, args=("without",))]  # fmt: skip
        for thread in threads:
            thread.start()
            thread.join()
    found = by_name(run)
    assert found["with"].parent == found["main"].span
    assert found["without"].parent == ""


def test_function_is_decorated_without_parentheses(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """As with them; methods of classes keep their kind; what is no function stays as it is, and that is said."""

    @run.span
    def plus(number: int) -> int:
        return number + 1

    class Model:
        @run.span
        @staticmethod
        def static(number: int) -> int:
            return number

        @run.span()
        @classmethod
        def made(cls, number: int) -> tuple[type, int]:
            return cls, number

        @run.span()
        @property
        def size(self) -> int:
            return 4

    @NullRun().span
    def alone() -> int:
        return 5

    assert (plus(1), Model.static(2), Model().static(3), Model.made(4)[1], Model().size, alone()) == (2, 2, 3, 4, 4, 5)
    assert [span.inputs for span in written(run)] == [{"number": number} for number in (1, 2, 3, 4)]
    assert "is no function" in capsys.readouterr().err


def test_generators_are_spans_until_they_end(run: Run) -> None:
    """What is called while it runs is below it, not what happens between; its outputs are what it gave."""

    @run.span(kind="llm")
    def words(count: int) -> Iterator[str]:
        for number in range(count):
            with run.span(f"inner {number}"):
                pass
            back = yield f"w{number} "
            assert back == (7 if number == 0 else None)

    @run.span()
    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            with run.span("far"):
                await asyncio.sleep(0)
            yield number

    @run.span()
    def broken() -> Iterator[int]:
        try:
            yield 1
        except KeyError:
            yield 2
        raise ValueError("no such")

    async def main() -> list[int]:
        return [number async for number in numbers()]

    stream = words(3)
    assert [next(stream), stream.send(7)] == ["w0 ", "w1 "]
    with run.span("between"):
        pass
    assert list(stream) == ["w2 "]
    assert asyncio.run(main()) == [0, 1, 2]
    raising = broken()
    assert (next(raising), raising.throw(KeyError())) == (1, 2)
    with pytest.raises(ValueError, match="no such"):
        next(raising)
    closed = words(2)
    next(closed)
    closed.close()
    spans = written(run)
    found = {span.name.rpartition(".")[2]: span for span in spans}
    first = next(span for span in spans if span.name.endswith("words"))
    assert (first.outputs, first.inputs, first.status) == ("w0 w1 w2 ", {"count": 3}, "ok")
    assert found["between"].parent == ""
    assert found["inner 2"].parent == first.span
    assert found["far"].parent == found["numbers"].span
    assert (found["numbers"].outputs, found["broken"].outputs) == ([0, 1, 2], [1, 2])
    assert found["broken"].error.startswith("ValueError")
    assert (found["words"].outputs, found["words"].status) == ("w0 ", "ok")


def test_outputs_of_a_generator_hold_no_values(run: Run) -> None:
    """Tensors of a loader are described, and freed; a long stream keeps what a span has room for."""

    class Tensor:
        shape, dtype = (3,), "float32"

    @run.span()
    def batches() -> Iterator[Any]:
        for _ in range(2):
            yield Tensor()

    @run.span()
    def text() -> Iterator[str]:
        for _ in range(20):
            yield "x" * 10_000

    kept = [weakref.ref(batch) for batch in batches()]
    assert [one() for one in kept] == [None, None]
    assert sum(map(len, text())) == 200_000
    first, second = written(run)
    assert first.outputs == ["<Tensor float32 [3]>"] * 2
    assert 60_000 < len(second.outputs) <= work.LONGEST
    assert second.outputs.endswith("…")


def test_block_of_a_coroutine_is_a_span(run: Run) -> None:
    """``async with`` is the same as ``with``."""

    async def main() -> None:
        async with run.span("outer"), run.span("inner") as span:
            span.outputs = 1

    asyncio.run(main())
    found = by_name(run)
    assert found["inner"].parent == found["outer"].span


def test_nothing_is_below_a_span_that_has_ended(run: Run) -> None:
    """Blocks that end in another order than they nest leave no span behind; chains of them aren't kept."""
    first, second = run.span("first"), run.span("second")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    with run.span("after"):
        pass
    one = run.span("0").__enter__()
    for number in range(1, 50):
        other = run.span(str(number)).__enter__()
        one.__exit__(None, None, None)
        one = other
    depth, above = 0, one
    while above._around is not None:
        depth, above = depth + 1, above._around
    assert depth <= 2
    one.__exit__(None, None, None)
    found = by_name(run)
    assert found["after"].parent == ""


def test_attributes_that_are_no_mapping_are_said(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """One line; the span is there without them."""
    wrong: Any = [1, 2]
    with run.span("a", attributes=wrong):
        pass
    assert by_name(run)["a"].attributes == {}
    assert "attributes [1, 2] are left out: give a mapping" in capsys.readouterr().err


@pytest.mark.heavy
def test_tokens_of_threads_are_all_summed_up(run: Run) -> None:
    """Though all add at once."""

    def call() -> None:
        for _ in range(200):
            with run.span("call", attributes={gen_ai.INPUT: 1}):
                pass

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.finish()
    assert trackers.load(run.path).summary == {gen_ai.INPUT: 1600}


def test_tokens_of_all_attempts_are_summed_up(run: Run) -> None:
    """A resumed run's results are those of the whole run; each attempt logs the table of its own spans."""
    with run.span("call", attributes={gen_ai.INPUT: 5}):
        pass
    run.finish()
    again = trackers.init("json", project="p", id=run.id, resume="must", mode="offline")
    with again.span("call", attributes={gen_ai.INPUT: 7}):
        pass
    again.finish()
    data = trackers.load(run.path)
    assert data.summary == {gen_ai.INPUT: 12}
    assert [len(table) for table in data.tables()] == [1, 1]


class Odd:
    """Raises when it is looked at."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def test_any_value_can_go_in(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """What JSON can't hold is described, secrets are masked, long values are cut, cycles end; nothing raises."""
    np = pytest.importorskip("numpy")
    cycle: list[Any] = []
    cycle.append(cycle)
    values = {
        "nan": math.nan, "odd": Odd(), "cycle": cycle, "array": np.zeros((2, 3)), "key": {"api_key": "hunter2hunter2"},
        "surrogate": "\udce9", "bytes": b"\xff", 3: {1, 2},
    }  # fmt: skip
    with run.span("in", inputs=values, kind="\ud800") as span:
        span.outputs = "x" * 200_000
        span.set(3, ["no mapping"])  # type: ignore[arg-type]
        span.set({f"a{k}": k for k in range(1000)})
        span.set({"deep": json.loads("[" * 300 + "]" * 300)})
    with run.span(Odd(), attributes=7):  # type: ignore[arg-type]
        pass
    first, second = written(run)
    assert first.inputs["odd"] == "<Odd>"
    assert first.inputs["array"] == "<ndarray float64 [2, 3]>"
    assert first.inputs["key"] == {"api_key": "***"}
    assert first.inputs["3"] == [1, 2]
    assert len(first.outputs) == work.LONGEST
    assert len(first.attributes) == work.ATTRIBUTES
    assert second.name
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.heavy
def test_what_is_cut_is_not_looked_at(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large values cost what fits: no more is described, written, or searched for secrets."""
    seen: list[int] = []

    def counted(value: Any, name: str) -> Any:
        seen.append(len(json.dumps(value)))
        return value

    monkeypatch.setattr(work, "mask", counted)
    large = "x" * 5_000_000
    values = [large, [large] * 50, {str(k): large for k in range(50)}, list(range(3_000_000)), bytes(3_000_000),
              {"a": [{"b": large}] * 3}, set(range(200_000))]  # fmt: skip
    for value in values:
        with run.span("large", inputs=value):
            pass
    assert max(seen) < 8 * work.LONGEST
    found = [span.inputs for span in written(run)]
    assert found[0] == "x" * (work.LONGEST - 1) + "…"
    assert found[1][1] == "… 49 more"
    assert found[2]["…"] == "49 more"
    assert len(json.dumps(found[3])) <= 2 * work.LONGEST
    assert found[4] == "<3,000,000 bytes>"
    assert found[6] == "<a set of 200,000>"


def test_block_may_end_in_another_context(run: Run) -> None:
    """As generators do; what comes after isn't below it."""
    span = run.span("outer")
    contextvars.copy_context().run(span.__enter__)
    span.__exit__(None, None, None)
    span.__exit__(None, None, None)
    with run.span("after"):
        pass
    assert [(one.name, one.parent) for one in written(run)] == [("outer", ""), ("after", "")]


def test_spans_are_a_table_and_tokens_are_results_at_the_end(run: Run) -> None:
    """For trackers that have no spans; of all calls together."""
    for number in range(3):
        with run.span("call", inputs={"n": number}) as span:
            span.set({gen_ai.INPUT: 10, "gen_ai.usage.completion_tokens": number, gen_ai.OUTPUT + "x": 1})
    run.finish()
    data = trackers.load(run.path)
    assert data.summary == {gen_ai.INPUT: 30, gen_ai.OUTPUT: 3}
    table = data.table(work.TABLE)
    assert table.column_names == list(span_table.COLUMNS)
    assert table["inputs"].to_pylist() == ['{"n":0}', '{"n":1}', '{"n":2}']
    assert table["status"].to_pylist() == ["ok"] * 3
    spans = data.spans()
    assert spans["inputs"].to_pylist() == ['{"n":0}', '{"n":1}', '{"n":2}']
    assert spans["parent"].null_count == 3


@pytest.mark.parametrize("step", [None, 100])
def test_what_comes_at_the_end_has_the_last_rows_step(step: int | None, run: Run) -> None:
    """A call that logs results alone makes no row, whatever its step: a run of ten steps has no eleventh by it."""
    for number in range(10):
        run.log({"loss": 1.0}, step=number)
    with run.span("call"):
        pass
    run.log({"final/best": 1.0}, step=step)
    run.summary["verdict"] = "good"
    run.finish()
    lines = (Path(run.path) / "streams/rank-0.1.jsonl").read_bytes().splitlines()
    ends = [record for line in lines[-4:] if isinstance(record := decode(line), (Media, Summary))]
    assert [record.step for record in ends if "final/best" not in getattr(record, "values", {})] == [9, 9]


def test_table_at_the_end_is_bounded(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first of many spans; the journal has all; it is said."""
    monkeypatch.setattr(span_table, "ROWS", 2)
    for _ in range(5):
        with run.span("call"):
            pass
    run.finish()
    data = trackers.load(run.path)
    assert (len(data.table(work.TABLE)), len(data.spans())) == (2, 5)
    assert "the table spans has the first 2 of 5 spans" in capsys.readouterr().err


def test_run_without_spans_has_no_table(run: Run) -> None:
    """Nothing is logged for those who don't use them."""
    run.span("never entered")
    run.finish()
    assert trackers.load(run.path).tables() == []


def test_span_of_a_finished_or_disabled_run_does_nothing(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The block is run, its exception goes on, a function is called."""
    run.finish()
    for one in (run, NullRun()):
        with one.span("x") as span:
            span.outputs = 1
            span.set(a=1)

        @one.span()
        def double(number: int) -> int:
            return 2 * number

        assert double(2) == 4
        with pytest.raises(KeyError), one.span("x"):
            raise KeyError
    assert written(run) == []
    assert capsys.readouterr().err.count("\n") <= 1


def test_spans_of_two_runs_are_apart(run: Run, tmp_path: Path) -> None:
    """A block of one run within that of another is a trace of its own."""
    other = trackers.init("json", project="p", mode="offline", dir=str(tmp_path / "other"), reinit=True)
    assert isinstance(other, Run)
    with run.span("one"), other.span("two"), run.span("three"):
        pass
    other.finish()
    assert written(other)[0].parent == ""
