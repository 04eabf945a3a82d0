"""Values that W&B's client records and that are no numbers. Compared with it: tests/as_wandb/test_same_as_wandb.py."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import functools
import ipaddress
import math
import pathlib
import re
import uuid
from typing import Any

import numpy as np
import pandas as pd
import pydantic
import pytest

from trackers.values.coerce import Split
from trackers.values.wandb_values import converted


class Colour(enum.Enum):
    """Without numbers."""

    RED = object()


class Number(enum.Enum):
    """With numbers."""

    TWO = 2


class Word(enum.Enum):
    """With texts."""

    GO = "go"
    BOTH = (1, "a")


class Answer(pydantic.BaseModel):
    """A model, as clients of language models give them."""

    score: float = pydantic.Field(serialization_alias="mark")
    words: list[str] = []
    inner: Answer | None = None


@dataclasses.dataclass
class Losses:
    """Values with names."""

    total: float
    parts: Any = None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1, math.nan, None, "a"], '[1, "NaN", null, "a"]'),
        ([np.float32(0.5), [np.array([1, 2])]], "[0.5, [[1, 2]]]"),
        (np.zeros((0, 3)), "[]"),
        (range(3), "[0, 1, 2]"),
        (Colour.RED, "RED"),
        (Word.GO, "go"),
        (Word.BOTH, '[1, "a"]'),
        ([Word.BOTH, Colour.RED, Number.TWO], '[[1, "a"], "RED", 2]'),
        (np.array([0.5, 0.25], dtype=np.longdouble), "[0.5, 0.25]"),
        ([np.longdouble(0.5), pd.NA, 1], "[0.5, null, 1]"),
        (pd.array([1, None], dtype="Int64"), "[1, null]"),
        ([Answer(score=1), Losses(0.5)], '[{"mark": 1.0, "words": [], "inner": null}, {"total": 0.5, "parts": null}]'),
        (ipaddress.ip_address("10.0.0.1"), "10.0.0.1"),
        (pydantic.SecretStr("word"), "*" * 10),
        (functools.partial(int, base=2), "functools.partial(<class 'int'>, base=2)"),
        (datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone.utc), "2024-01-02T00:00:00Z"),
        (b"\xff", "\ufffd"),
        (bytearray(b"ab"), "ab"),
        (collections.deque([1, (2, {3})]), "[1, [2, [3]]]"),
        (pathlib.Path("a") / "b", "a/b"),
        (np.datetime64("2024-01-02T03:04", "us"), "2024-01-02T03:04:00"),
        (np.datetime64("2024-01-02"), "2024-01-02"),
        (np.timedelta64(5, "s"), "PT5S"),
        (np.complex64(1 + 1j), "1+1j"),
        (np.array("x"), "x"),
        (np.bytes_(b"ab"), "ab"),
        (np.array([1j, 2]), '["1j", "2+0j"]'),
        (["a", math.nan, np.float64("nan"), "NaN"], '["a", null, null, "NaN"]'),
        ([["a", math.nan], math.nan], '[["a", null], "NaN"]'),
        (["a", math.nan, 0.5], '["a", "NaN", 0.5]'),
        (np.array(["a"]), "a"),
        (np.array([[1j]]), "1j"),
        ([np.array([0.5]), {"a": np.array([["b"]])}, np.array(["a", "b"])], '[0.5, {"a": "b"}, ["a", "b"]]'),
        (
            [datetime.timedelta(hours=1), b"a", 2j, len, {"p": pathlib.Path("b")}, Word.GO, Number.TWO],
            '["PT1H", "a", "2j", "builtins.len", {"p": "b"}, "go", 2]',
        ),
        ([np.timedelta64(5, "s"), np.zeros((0,))], '["PT5S", []]'),
        (-1j, "-0-1j"),
        (datetime.time(1, 2, 3), "01:02:03"),
        (datetime.timedelta(days=1, seconds=2.25), "P1DT2.25S"),
        (datetime.timedelta(seconds=-1.5), "-PT1.5S"),
        (datetime.timedelta(), "PT0S"),
        (datetime.timedelta(days=3), "P3D"),
        (datetime.timedelta(hours=25, minutes=61, microseconds=1), "P1DT2H1M0.000001S"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (re.compile("a.*"), "a.*"),
        ([re.compile(b"b+")], "[\"b'b+'\"]"),
    ],
    ids=lambda value: re.sub(" at 0x[0-9a-f]+", "", str(value)),
)
def test_odd_values_become_texts(value: Any, text: str) -> None:
    """What is within a list, too."""
    split = Split(otherwise=converted)
    split.add({"x": value})
    assert (split.texts, split.problems) == ({"x": text}, [])
    assert split.lists == ({"x"} if text.startswith("[") else set())


def test_dataclass_is_nested_values() -> None:
    """As W&B's client has it, within one another too; one that holds itself is named."""
    split = Split(otherwise=converted)
    endless = Losses(3.0)
    endless.parts = endless
    split.add({"x": Losses(0.5, Losses(0.25, "text")), "endless": endless})
    assert {name: value for name, value in split.numbers.items() if name[0] == "x"} == {
        "x/total": 0.5,
        "x/parts/total": 0.25,
    }
    assert split.texts == {"x/parts/parts": "text"}
    (problem,) = split.problems
    assert "nested deeper" in problem


def test_model_is_nested_values() -> None:
    """W&B's client writes a model of pydantic so; here it was refused."""
    split = Split(otherwise=converted)
    split.add({"x": Answer(score=1, words=["a"], inner=Answer(score=2)), "class": Answer})
    assert split.numbers == {"x/mark": 1.0, "x/inner/mark": 2.0}
    assert split.texts == {"x/words": '["a"]', "x/inner/words": "[]", "class": f"{__name__}.Answer"}
    assert split.problems == []


def test_name_of_a_nested_value_is_written_as_in_json() -> None:
    """W&B's client has the member's value, and parts joined by commas; here it was Python's text."""
    split = Split(otherwise=converted)
    split.add({"n": {Number.TWO: 1, Word.GO: 2, (1, "a"): 3, True: 4, b"k": 5, 2.5: 6, None: 7, Number: 8}})
    names = ["n/2", "n/go", "n/1,a", "n/true", "n/k", "n/2.5", "n/None", f"n/{__name__}.Number"]
    assert list(split.numbers) == names


def test_what_has_no_form_is_named_and_the_rest_is_kept() -> None:
    """An object, a generator, an array of which no histogram can be made."""
    split = Split(otherwise=converted)
    wrong = {"o": object(), "g": (one for one in [1]), "words": np.array(["a"] * 40)}
    split.add({**wrong, "many": np.arange(40.0), "n": 1})
    assert [problem.partition(":")[0] for problem in split.problems] == list(wrong)
    assert (list(split.media), split.numbers) == (["many"], {"n": 1})


def test_without_w_and_b_an_array_is_named() -> None:
    """A script that calls this package by its name is told to say what it wants of an array."""
    split = Split()
    split.add({"x": np.arange(3), "y": [1, 2]})
    assert not split.texts
    assert len(split.problems) == 2
