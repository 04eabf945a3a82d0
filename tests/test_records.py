"""A record survives its line; a line from elsewhere can't hurt a reader."""

from __future__ import annotations

import json
import math
import weakref

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackers import records
from trackers.formats.float_names import listed
from trackers.records import Config, CorruptLine, Media, MediaFile, Metrics, Summary, Text, decode, encode

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
NUMBERS = st.one_of(st.floats(), st.integers(), st.booleans())


@pytest.mark.heavy
@given(st.dictionaries(NAMES, NUMBERS, max_size=20), st.integers(-5, 10**9), st.floats(0, 4e9))
def test_metrics_round_trip_any_dictionary(values: dict[str, float], step: int, time: float) -> None:
    """Every name and every number, NaN, infinities and huge integers among them, comes back as it was."""
    line = encode(Metrics(step=step, time=time, values=values))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    found = decode(line[:-1])
    assert isinstance(found, Metrics)
    assert (found.step, found.time) == (step, time)
    assert list(found.values) == list(values)
    for name, value in values.items():
        assert found.values[name] == value or (math.isnan(value) and math.isnan(found.values[name]))


def test_non_finite_numbers_are_the_named_strings() -> None:
    """NaN and infinities are the three strings that the format names, at any depth."""
    line = encode(Metrics(step=1, time=2.0, values={"a": math.nan, "b": math.inf, "c": -math.inf, "null": 1}))
    assert json.loads(line)["values"] == {"a": "NaN", "b": "Infinity", "c": "-Infinity", "null": 1}
    line = encode(Config(time=1.0, values={"x": {"y": [math.nan, None]}}))
    assert json.loads(line)["values"] == {"x": {"y": ["NaN", None]}}
    line = encode(Summary(time=1.0, values={"final/best": math.inf}))
    assert json.loads(line) == {"kind": "summary", "time": 1.0, "values": {"final/best": "Infinity"}}


def test_unknown_kinds_and_fields_are_tolerated() -> None:
    """A newer writer's kinds are skipped and its fields ignored."""
    assert decode(b'{"kind":"hologram","time":1.0,"values":{}}') is None
    found = decode(b'{"kind":"metrics","step":1,"time":1.0,"values":{"a":1.5},"color":"red"}')
    assert isinstance(found, Metrics)
    assert found.values == {"a": 1.5}


@given(st.binary(max_size=200))
def test_decode_damage_raises_only_corrupt_line(line: bytes) -> None:
    """Whatever stands in a line, reading it gives a record, None or CorruptLine."""
    try:
        found = decode(line)
    except CorruptLine:
        return
    assert found is None or isinstance(found, records.Record)


def test_media_round_trip() -> None:
    """Nested structures come back as structures."""
    item = MediaFile(format="png", file="media/ab/cd.png", caption="seven", width=8, height=8)
    found = decode(encode(Media(time=1.0, step=3, name="images", type="image", items=[item]))[:-1])
    assert isinstance(found, Media)
    assert found.items == [item]


def test_final_names_have_two_spellings() -> None:
    """A result has one name with the prefix and one without."""
    assert records.final_name("best") == records.final_name("final/best") == "final/best"
    assert records.plain_name("final/best") == records.plain_name("best") == "best"


def test_block_decodes_as_its_lines_do() -> None:
    """A block gives what its lines give, and refuses what one of them would."""
    lines = [encode(Metrics(step=step, time=1.0, values={"a": math.nan, "b": step})) for step in range(3)]
    found = records.decode_block(b"".join(lines))
    assert [encode(record) for record in found] == lines
    with pytest.raises(CorruptLine):
        records.decode_block(b"".join([*lines, b"{torn\n"]))
    with pytest.raises(CorruptLine):
        records.decode_block(b"".join([*lines, b'{"kind":"later","time":1}\n']))


@pytest.mark.parametrize("depth", [records.DEPTH + 1, 480, 700, 990])
@pytest.mark.parametrize("kind", ["config", "summary", "environment", "start", "media", "artifact"])
def test_nesting_is_bounded_in_every_record(kind: str, depth: int) -> None:
    """What Python can't walk is damage to who reads it; a writer keeps what lies too deep as text."""
    fields = {"start": '"run":%s', "media": '"name":"x","type":"html","items":[{"format":"json","data":%s}]',
              "artifact": '"name":"x","metadata":%s'}  # fmt: skip
    deep = '{"a":' * depth + "1" + "}" * depth
    field = fields.get(kind, '"values":%s') % deep
    line = f'{{"kind":"{kind}","time":1.0,{field}}}'.encode()
    with pytest.raises(CorruptLine):
        decode(line)
    with pytest.raises(CorruptLine):
        records.decode_block(line + b"\n")
    values: dict[str, object] = {"a": math.nan}
    for _ in range(depth):
        values = {"a": values}
    written: dict[str, records.Record] = {
        "start": records.Start(time=1.0, run=values), "config": Config(time=1.0, values=values),
        "media": Media(time=1.0, name="x", type="html", items=[MediaFile(format="json", data=values)]),
        "artifact": records.ArtifactRecord(time=1.0, name="x", metadata=values),
        "summary": Summary(time=1.0, values=values),
        "environment": records.Environment(time=1.0, values=values),
    }  # fmt: skip
    found = decode(encode(written[kind])[:-1])
    assert type(found) is type(written[kind])
    records.check_record(found)


def test_nesting_that_is_allowed_is_kept() -> None:
    """As deep as the bound, the record comes back as it was written."""
    values: dict[str, object] = {"a": 1}
    for _ in range(records.DEPTH - 1):
        values = {"a": values}
    assert decode(encode(Config(time=1.0, values=values))[:-1]) == Config(time=1.0, values=values)


def test_encoding_lets_go_of_a_value_that_it_refuses() -> None:
    """Given as a list, a record that can't be encoded is gone afterwards."""

    class Value:
        pass

    value = Value()
    left = weakref.ref(value)
    with pytest.raises(TypeError):
        records.encode_lines([Metrics(step=1, time=2.0, values={"loss": value})])  # type: ignore[dict-item]
    del value
    assert left() is None


NUMERIC = [
    (kind.__struct_config__.tag, field.encode_name)
    for kind in (*records.KINDS, records.Console, records.Span)
    for field in msgspec.structs.fields(kind)
    if field.type in records._BOUNDS and field.type is not int and field.encode_name not in ("id", "seq", "version")
]
WHOLE = {
    "metrics": {"values": {"a": 1}}, "config": {"values": {}}, "text": {"values": {}}, "summary": {"values": {}},
    "environment": {"values": {}}, "media": {"name": "x", "type": "html", "items": []}, "artifact": {"name": "x"},
    "define": {"name": "x"}, "alert": {"title": "x"}, "finish": {"status": "finished"},
    "span": {"name": "x", "trace": "1", "span": "2", "began": 1.0},
}  # fmt: skip


@pytest.mark.parametrize(("kind", "field"), NUMERIC)
def test_numbers_of_a_record_are_bounded_where_it_is_read(kind: str, field: str) -> None:
    """A line with a time that no calendar knows, or a number beyond 64 bits, is damaged: nobody calculates with it."""
    for odd in (1e300, -1e300, "NaN", "Infinity", 10**400, -(2**70)):
        line = {"kind": kind, "time": 1.0, **WHOLE.get(kind, {}), field: odd}
        with pytest.raises(CorruptLine):
            decode(json.dumps(line).encode())
        with pytest.raises(CorruptLine):
            records.decode_block(json.dumps(line).encode() + b"\n")


@pytest.mark.parametrize("time", [1e300, -1e300, math.nan, math.inf])
def test_record_with_an_odd_time_is_written_so_that_it_can_be_read(time: float) -> None:
    """Whoever made it, the rest of it is kept."""
    found = decode(encode(records.Alert(time=time, title="kept", step=3))[:-1])
    assert found == records.Alert(time=0.0, title="kept", step=3)


@pytest.mark.parametrize("odd", [-1, -(2**70), 2**53 + 1, 1e300, math.nan])
def test_record_with_an_odd_size_is_written_so_that_it_can_be_read(odd: float) -> None:
    """A negative size or one that no file has is left out; the medium and its file are kept."""
    item = records.MediaFile(format="png", file="media/a.png", width=odd, height=2, fps=25.0)  # type: ignore[arg-type]
    found = decode(encode(records.Media(time=1.0, name="a", type="image", items=[item]))[:-1])
    assert found.items == [records.MediaFile(format="png", file="media/a.png", height=2, fps=25.0)]


@pytest.mark.parametrize("began", [1e300, -1e300, math.nan, math.inf])
def test_span_that_began_at_an_odd_time_has_no_length(began: float) -> None:
    """It is read as begun when it ended, not decades before."""
    written = records.Span(time=9.0, began=began, name="x", trace="1", span="2")
    found = decode(encode(written)[:-1])
    assert isinstance(found, records.Span)
    assert (found.start, found.seconds) == (written.start, written.seconds) == (9.0, 0.0)


def test_lists_are_told_from_texts_that_look_like_them() -> None:
    """A record names them; a journal without names, of an earlier release, has texts; what is masked stays a text."""
    values = {"x": '[1, ["NaN"]]', "masked": '["***', "told": "[1]", "number": "1"}
    record = decode(encode(Text(time=1.0, values=values, lists=["x", "masked", "number", "gone"])))
    assert isinstance(record, Text)
    found = listed(record)
    assert math.isnan(found["x"][1].pop())
    assert found == {**values, "x": [1, []]}
    assert b"lists" not in encode(Text(time=1.0, values=values))
    assert listed(Summary(time=1.0, values={"x": 0.5, "y": "[1]"}, lists=["x"])) == {"x": 0.5, "y": "[1]"}


@pytest.mark.parametrize("record", [
    Metrics(step=7, time=1.0, values={"epoch": 2, "val": 0.5}, axis=2, over=("epoch",)),
    Metrics(step=7, time=1.0, values={"epoch": 2}, axis=2, over=("epoch",)),
    Metrics(step=7, time=1.0, values={"val": 0.5}, axis=2),
    Text(step=7, time=1.0, values={"said": "x"}, axis=2),
    Media(step=7, time=1.0, name="m", type="image", items=[], axis=2),
], ids=["both", "step metric", "values", "text", "media"])  # fmt: skip
def test_record_at_its_place_stays_there(record: records.Record) -> None:
    """Placed once more it went to training's step; a delivery places again what it halves."""
    parts = records.on_axis(record)
    assert [part for placed in parts for part in records.on_axis(placed)] == parts
    assert {(part.step, part.trained) for part in parts} <= {(7, None), (2, 7)}
