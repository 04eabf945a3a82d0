"""What people log: a value that can't be recorded costs itself, never its neighbours, and is named."""

from __future__ import annotations

import datetime
import decimal
import enum
import errno
import fractions
import math
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import PIL.Image
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import trackers
from trackers.formats.json_values import MAX_NAME
from trackers.journal.run_directory import RunDirectory
from trackers.journal.stream import StreamReader
from trackers.records import Alert, ArtifactRecord, Config, Define, Finish, Info, Media, Metrics, Record, Summary, Text
from trackers.training import recorder
from trackers.training.run import Run
from trackers.values.coerce import MAX_TEXT

FILE_NAME = os.fsdecode(b"caf\xe9.png")
"""As os.listdir gives a name that isn't UTF-8: with a lone surrogate."""
ESCAPED = "caf\\udce9.png"


class Words(str):
    """Text of a class of one's own, as many libraries have it."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Amount(float):
    def __float__(self) -> float:
        raise ValueError("no float")


class Count(int):
    def __int__(self) -> int:
        raise ValueError("no int")


class Colour(str, enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Choice(enum.Enum):
    ADAM = "adam"
    HALF = 0.5


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even a message")

    __repr__ = __str__


class Hostile:
    """Whatever it is asked, it raises."""

    def _refuse(self, *_: Any) -> Any:
        raise Silent

    __str__ = __repr__ = __float__ = __int__ = __bool__ = __len__ = __iter__ = __index__ = _refuse
    __hash__ = object.__hash__

    @property
    def item(self) -> Any:
        raise Silent

    tolist = numel = shape = item


class Refusing(Mapping[str, Any]):
    """A mapping that can't be read."""

    def __getitem__(self, name: str) -> Any:
        raise Silent

    def __iter__(self) -> Iterator[str]:
        raise Silent

    def __len__(self) -> int:
        raise Silent


def cyclic() -> dict[str, Any]:
    found: dict[str, Any] = {"ok": 1.0}
    found["again"] = found
    return found


SCALARS = [np.dtype(code).type(1) for code in np.typecodes["AllInteger"] + np.typecodes["Float"] + "?"]

TAKEN: list[tuple[Any, Any]] = [
    *((scalar, 1) for scalar in SCALARS), (np.array(2.5), 2.5), (np.array([7]), 7), (np.float64(math.pi), math.pi),
    (torch.tensor(1.5, dtype=torch.float16), 1.5), (torch.tensor(True), True),
    (Amount(1.5), 1.5), (Count(3), 3), (Level.HIGH, 3), (Choice.HALF, 0.5), (True, True), (2**64, 2**64),
    (-(2**1000), -(2**1000)), (decimal.Decimal("0.125"), 0.125), (fractions.Fraction(1, 4), 0.25),
    (decimal.Decimal("Infinity"), math.inf), (pd.Series([2.5])[0], 2.5), (pd.Series([7], dtype="Int64")[0], 7),
    (np.ma.array(2.5), 2.5), (np.ma.array([2.5], mask=[False]), 2.5),
    (np.str_("cat"), "cat"), (np.array(["cat"])[0], "cat"), (Words("cat"), "cat"), (Colour.RED, "red"), ("", ""),
    (FILE_NAME, ESCAPED), ("\0 \x1b[31m \u2028 é", "\0 \x1b[31m \u2028 é"), ("\ud83d\ude00", "\\ud83d\\ude00"),
]  # fmt: skip
"""What is logged, and what is recorded of it."""

REFUSED: list[Any] = [
    Hostile(), Refusing(), object(), b"bytes", bytearray(b"x"), 1j, np.complex64(1j), np.bytes_(b"x"), np.array("cat"),
    np.void(b"x"), np.array([]), 10**400, -(10**5000), Count(10**400), decimal.Decimal("1E+500"),
    decimal.Decimal("sNaN"), fractions.Fraction(10**400), datetime.datetime(2026, 1, 1), datetime.timedelta(1),
    pd.NA, pd.Timestamp(0), {1, 2}, [1.0], (1,), [[object()]], Choice.ADAM, Choice, lambda: 0, range(3),
    torch.tensor(1.0, device="meta"), torch.zeros(2), np.longdouble("1e400"), sys, Ellipsis, NotImplemented,
    np.ma.masked, np.ma.array(2.0, mask=True), np.ma.array([2.0], mask=[True]),
]  # fmt: skip


def lines(run: Run) -> list[Record]:
    """All records of the journal; fails if any line is damaged."""
    reader = StreamReader(Path(run.dir, "streams", "rank-0.1.jsonl"))
    found = reader.read(10**6, max_bytes=1 << 30)
    assert (reader.corrupt, reader.offset) == (0, reader.size())
    return found


def logged(run: Run, step: int) -> dict[str, Any]:
    return {
        name: value
        for record in lines(run)
        if isinstance(record, (Metrics, Text)) and record.step == step
        for name, value in record.values.items()
    }


def said(run: Run, words: str) -> int:
    return sum(words in line for line in run._recorder._problems)


def test_value_of_any_scalar_type_is_recorded(run: Run) -> None:
    """Scalars of NumPy, torch, pandas and decimals are numbers; text of any class is text: nothing is said of them."""
    for turn in range(2):
        for number, (value, _) in enumerate(TAKEN):
            run.log({"good": 1.0, f"v{number}": value}, step=1000 * turn + number)
    found = {record.step: {} for record in lines(run) if isinstance(record, Metrics)}
    for record in lines(run):
        if isinstance(record, (Metrics, Text)):
            found[record.step].update(record.values)
    for turn in range(2):
        for number, (value, kept) in enumerate(TAKEN):
            assert found[1000 * turn + number] == {"good": 1.0, f"v{number}": kept}, type(value)
    assert not run._recorder._problems


GOOD = st.floats(allow_nan=False) | st.integers(-(2**70), 2**70) | st.booleans()
NAMES = st.sampled_from(["a", "b", "c/d", "é", "x" * 1024]) | st.text(min_size=1, max_size=5).filter(
    lambda text: bool(text.strip()) and "/" not in text and text.isprintable()
)
VALUES = st.one_of(
    st.sampled_from([value for value, _ in TAKEN]), st.sampled_from(REFUSED), st.text(max_size=5),
    st.text("\ud800\udcff\0é", max_size=4), st.none(),
    st.dictionaries(st.one_of(st.integers(), st.none(), st.text(max_size=3)), st.sampled_from(REFUSED), max_size=2),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    good=st.dictionaries(NAMES, GOOD, max_size=4),
    bad=st.dictionaries(st.integers(0, 9), VALUES, max_size=4),
    keys=st.sets(st.sampled_from(["\udcff", "y" * 10**5, "\0", "n\nl", 7, None, ("t", 1), np.str_("key")]), max_size=2),
    first=st.booleans(),
)
def test_numbers_beside_anything_are_recorded(
    run: Run, good: dict[str, Any], bad: dict[int, Any], keys: set[Any], first: bool
) -> None:
    """Whatever else a call holds, under whatever names: its numbers are recorded, and every line can be read."""
    assume(not {str(key) for key in keys} & good.keys())  # None beside "None": one name for both
    step = run.step + 1
    odd: dict[Any, Any] = {f"bad{number}": value for number, value in bad.items()}
    odd |= dict.fromkeys(keys, 1.5)
    run.log({**odd, **good} if first else {**good, **odd}, step=step)
    run.log(dict.fromkeys(good, 0.5), step=step + 1)  # their names are known: the quick way, if it is one
    reader = StreamReader(Path(run.dir, "streams", "rank-0.1.jsonl"))
    found: dict[str, Any] = {}
    while records := reader.read(1000):
        for record in records:
            if isinstance(record, (Metrics, Text)) and record.step == step:
                found.update(record.values)
    assert reader.corrupt == 0
    assert {name: found.get(name) for name in good} == good
    assert list(found.values()).count(1.5) - list(good.values()).count(1.5) >= len(keys - {np.str_("key")})


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_value_that_cannot_be_recorded_is_named_alone(run: Run, value: Any) -> None:
    """One line names it, however often it comes; numbers and text beside it, nested too, are there."""
    for step in range(3):
        run.log({"a": 1.0, "bad_one": value, "nested": {"b": 2, "bad_two": value}, "t": "text"}, step=step)
        run.log({"a": 1.5, "nested/b": 3}, step=step + 10)
    for step in range(3):
        assert logged(run, step) == {"a": 1.0, "nested/b": 2, "t": "text"}
        assert logged(run, step + 10) == {"a": 1.5, "nested/b": 3}
    # A value of many, "{1, 2}" under two names, may be said in a line each.
    assert said(run, "bad_one") == said(run, "nested/bad_two") == 1
    assert len(run._recorder._problems) == 2


def test_name_of_blanks_is_its_codes(run: Run) -> None:
    """W&B takes such names; a page shows nothing of them. Each is a name of its own, in rows, results and mappings."""
    run.log({"\t": 1, " ": 2, "\n": "text", "\u2003": 3, "  ": {"a": 4}, "a": {" ": 5}, "b ": 6, "\t ": {"": 7}})
    run.log({"\t": 8})
    found = logged(run, 0)
    assert (found.pop(r"\x20\x20/a"), found.pop(r"\x09\x20/")) == (4, 7)
    assert found == {r"\x09": 1, r"\x20": 2, r"\x0a": "text", r"\x2003": 3, "a/ ": 5, "b ": 6}
    assert logged(run, 1) == {r"\x09": 8}


def test_key_of_any_kind_costs_itself(run: Run) -> None:
    """Keys that are no text, too long, or no text that can be written: their values are there, each by itself."""
    long = "k" * 10**5
    run.log({Hostile(): 1, Words("w"): 2, FILE_NAME: 3, 7: 4, None: 5, long + "1": 6, long + "2": 7, "": 8, "ok": 9})
    found = logged(run, 0)
    assert found.pop("w") == 2
    assert found.pop(ESCAPED) == 3
    assert (found.pop("7"), found.pop("None"), found.pop("ok")) == (4, 5, 9)
    assert list(found.values()) == [6, 7]
    assert all(len(name) == MAX_NAME for name in found)
    assert said(run, "Hostile: Silent") == said(run, "an empty name") == 1
    assert said(run, "a name of 100001 characters was cut") == 1


def test_values_of_one_name_are_named(run: Run) -> None:
    """Two keys that are the same name once written: the last one counts, and a line says so."""
    run.log({1: 1.0, "1": 2.0, "a": {"b": 3.0}, "a/b": 4.0, "c": 5.0})
    assert logged(run, 0) == {"1": 2.0, "a/b": 4.0, "c": 5.0}
    assert said(run, "1: several values") == said(run, "a/b: several values") == 1


@pytest.mark.parametrize("as_wandb", [True, False])
def test_list_of_media_and_other_values_is_named(as_wandb: bool, run: Run) -> None:
    """Its text would stand as a value, and the media be lost in silence."""
    image = trackers.Image(np.zeros((2, 2), "uint8"))
    run._recorder.holds_steps = as_wandb  # lists are kept then
    mixed = {"a": [image, 1], "b": (None, image), "c": [1, [image]], "d": {"e": ["text", image]}}
    run.log({"x": 1, **mixed, "y": [image]})
    run.summary.update(mixed)
    assert sum("a list of media and of other values" in line for line in run._recorder._problems) == 8
    assert set(run.summary) == {"x"}


@pytest.mark.parametrize("as_wandb", [True, False])
def test_list_of_media_of_several_kinds_is_recorded_by_kind(as_wandb: bool, run: Run) -> None:
    """Below its name, in its order; W&B's client stores descriptions that nothing shows."""
    image, page = trackers.Image(np.zeros((2, 2), "uint8")), trackers.Html("<b>a</b>")
    run._recorder.holds_steps = as_wandb
    run.log({"m": [image, page, PIL.Image.new("L", (3, 3))], "d": {"e": (page, trackers.Histogram([1, 2]))}})
    found = {(record.name, record.type): len(record.items) for record in lines(run) if isinstance(record, Media)}
    assert found == {
        ("m/image", "image"): 2, ("m/html", "html"): 1, ("d/e/html", "html"): 1, ("d/e/histogram", "histogram"): 1,
    }  # fmt: skip
    assert not run._recorder._problems


def test_cycles_end_and_cost_nothing_else(run: Run) -> None:
    """A mapping that holds itself is followed to a depth; the rest of the call is there."""
    run.log({"loss": 1.0, "tree": cyclic()})
    run.config.update({"tree": cyclic(), "lr": 0.1})
    run.summary.update({"tree": cyclic(), "best": 1.0})
    found = logged(run, 0)
    assert (found["loss"], found["tree/ok"], found["tree/again/ok"]) == (1.0, 1.0, 1.0)
    assert any(isinstance(record, Config) and record.values["lr"] == 0.1 for record in lines(run))
    assert any(isinstance(record, Summary) and record.values.get("best") == 1.0 for record in lines(run))


@pytest.mark.heavy
def test_long_text_is_cut_with_a_word(run: Run) -> None:
    """A text of up to a million characters is whole; a longer one is cut, and one line says how to keep it."""
    run.log({"whole": "é" * MAX_TEXT, "long": "x" * (2 * MAX_TEXT), "loss": 1.0})
    run.log({"final/long": "y" * (MAX_TEXT + 1)})
    found = logged(run, 0)
    assert (len(found["whole"]), len(found["long"]), found["loss"]) == (MAX_TEXT, MAX_TEXT, 1.0)
    assert said(run, "long: a text of 2,000,000 characters was cut to 1,000,000: keep it whole as a file") == 1
    assert said(run, "final/long: a text of 1,000,001 characters was cut") == 1


def test_numbers_that_cancel_in_a_sum_are_looked_at(run: Run) -> None:
    """Integers and decimals that no float holds don't get past the quick way together."""
    run.log({"a": 1, "b": 2})
    run.log({"a": 10**400, "b": -(10**400), "c": 1})
    run.log({"a": decimal.Decimal("1E+500"), "b": decimal.Decimal("-1E+500")})
    run.log({"a": 10**400, "b": -(10**400)})
    run.log({"a": decimal.Decimal("0.5"), "b": decimal.Decimal("0.25")})
    assert [record.values for record in lines(run) if isinstance(record, Metrics)] == [
        {"a": 1, "b": 2}, {"c": 1}, {"a": 0.5, "b": 0.25},
    ]  # fmt: skip


def test_scalars_are_read_without_a_closer_look(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's scalars and tensors of one value, of names that are known, take the quick way; others still are named."""
    kinds = [np.dtype(code).type for code in "bhilBHILefd?"]
    kinds += [lambda v, t=t: torch.tensor(v, dtype=t) for t in (torch.float32, torch.bfloat16, torch.int64, torch.bool)]
    scalars = {f"v{number}": kind(1) for number, kind in enumerate(kinds)}
    scalars["grad"] = torch.tensor([0.25], requires_grad=True)
    scalars["third"] = np.float32(1 / 3)
    plain = {name: value.item() for name, value in scalars.items()}
    run.log(plain, step=0)
    with monkeypatch.context() as patch:
        patch.setattr(recorder, "Split", None)
        for step in range(1, 2 * recorder.READ_CALLS + 4):
            run.log(scalars, step=step)
        run.log(plain, step=500)
        run.log({"v0": np.int8(3)})
    assert [record.values for record in lines(run) if isinstance(record, Metrics)] == [
        *[plain] * (2 * recorder.READ_CALLS + 5), {"v0": 3}
    ]  # fmt: skip
    assert not run._recorder._problems
    parameter = torch.nn.Parameter(torch.tensor(2.0))
    for value in (torch.zeros(2), torch.tensor(1.0, device="meta"), torch.tensor(1j), np.longdouble("1e400")):
        run.log({"third": np.float32(0.5), "v0": value, "grad": parameter}, step=600)
    run.log({"third": np.float32("nan"), "grad": parameter}, step=601)
    assert [record.values for record in lines(run)[-5:-1]] == [{"third": 0.5, "grad": 2.0}] * 4
    assert math.isnan(logged(run, 601)["third"])
    assert said(run, "v0") == len(run._recorder._problems)


def test_scalar_is_kept_while_the_disk_is_full(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the quick way couldn't write is written when there is space."""
    run.log({"loss": 1.0}, step=0)
    run.log({"loss": np.float32(0.5)}, step=1)
    write = os.write

    def full(fd: int, line: bytes) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "write", full)
    run.log({"loss": np.float32(0.25)}, step=2)
    monkeypatch.setattr(os, "write", lambda fd, line: write(fd, line[:20] if len(line) > 20 else line))
    run._recorder.flush(1.0)
    run.log({"loss": np.float32(0.125)}, step=3)
    monkeypatch.undo()
    run._recorder.flush(1.0)
    found = [(r.step, r.values["loss"]) for r in lines(run) if isinstance(r, Metrics)]
    assert found == [(0, 1.0), (1, 0.5), (2, 0.25), (3, 0.125)]


ODD: list[Any] = [
    FILE_NAME,
    Words("w"),
    Hostile(),
    Refusing(),
    5,
    None,
    b"\xff",
    1j,
    10**5000,
    np.str_("n"),
    [Hostile()],
]


@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
def test_no_call_fails_over_odd_text(run: Run, value: Any, tmp_path: Path) -> None:
    """Configuration, results, names, tags, notes, alerts, definitions, captions, tables, artifacts: nothing raises,
    every line can be read, and what stands beside an odd value is there."""
    pixels = np.zeros((4, 4, 3), "uint8")
    (tmp_path / FILE_NAME).write_bytes(b"picture")
    for turn in range(2):
        run.config.update({"odd": value, "deep": {"odd": [value, {"k": value}], "good": 1}, "lr": 0.1})
        run.config.update(value)
        run.config.setdefaults(value)
        run.config.attribute = value
        run.log_hyperparams(value)
        run.summary.update({"odd": value, "best": 2.0})
        run.summary.update(value)
        run.name = run.notes = value
        run.tags = value
        run.tags = ["good", value]
        run.alert(value, value, value)
        run.define_metric(value, step_metric=value, hidden=value)
        run.log({"image": trackers.Image(pixels, caption=value), "loss": 1.0}, step=turn)
        run.log({"table": trackers.Table(columns=["a", FILE_NAME], data=[[value, 1.5]]), "loss": 1.0}, step=turn)
        run.log_artifact(tmp_path / FILE_NAME, name=value, type=value, aliases=[value], metadata={"m": value, "n": 1})
        run.log_artifact(tmp_path / FILE_NAME, name="second", aliases=value, metadata=value)
        run.log({"loss": 2.0}, step=value)
        run.log(value)
    run.finish(exit_code=0, timeout=value)
    found = lines(run)
    kinds = {kind: [record for record in found if type(record) is kind] for kind in map(type, found)}
    assert isinstance(found[-1], Finish)
    configs = [record.values for record in kinds[Config] if "lr" in record.values]
    assert [(values["lr"], values["deep"]["good"]) for values in configs] == [(0.1, 1)] * 2
    assert [record.values["best"] for record in kinds[Summary]] == [2.0] * 2
    assert len(kinds[Info]) >= 6
    assert len(kinds[Alert]) == len(kinds[Define]) == 2
    assert len(kinds[Media]) == len(kinds[ArtifactRecord]) == 4
    assert all(record.files[0].size == 7 for record in kinds[ArtifactRecord])
    assert kinds[Media][1].items[0].data["rows"][0][1] == 1.5
    assert [record.values["loss"] for record in kinds[Metrics]].count(1.0) == 4
    assert [record.values["loss"] for record in kinds[Metrics]].count(2.0) == 2


def test_identity_with_odd_text_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments that aren't UTF-8, tags that are no text, settings that nobody can read: the run begins and is read."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    monkeypatch.setattr(sys, "argv", ["train.py", FILE_NAME])
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "train.py", raising=False)  # a test's worker has none
    config = {
        "odd": Hostile(),
        "large": 10**5000,
        "beyond": [2**1023],
        "held": 2**1022,
        "file": FILE_NAME,
        FILE_NAME: 1,
        "lr": 0.1,
        "set": {Hostile()},
    }
    run = trackers.init(
        "json", project="p", mode="offline", config=config, tags=[np.str_("a"), 5], job_type=Words("train"),
        name=np.str_("name"),
    )  # fmt: skip
    run.finish()
    info = RunDirectory(run.dir).read_info()
    assert (info.argv, info.tags, info.job_type, info.name) == ([ESCAPED], ["a", "5"], "train", "name")
    assert info.config["odd"] == "<Hostile>"
    assert info.config["large"] == hex(10**5000)
    assert (info.config["beyond"], info.config["held"]) == ([hex(2**1023)], 2**1022)
    assert (info.config["file"], info.config[ESCAPED], info.config["lr"]) == (ESCAPED, 1, 0.1)


def test_exception_without_a_message_ends_the_run(run: Run) -> None:
    """The reason is the exception's type where its text can't be had; text that can't be written is escaped."""
    with pytest.raises(Silent), run:
        raise Silent
    last = lines(run)[-1]
    assert isinstance(last, Finish)
    assert (last.status, last.reason) == ("failed", "Silent")
