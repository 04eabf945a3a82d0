"""Values of a configuration that JSON hasn't: as W&B's client writes them."""

from __future__ import annotations

import collections
import json
import re
from typing import Any

import pytest

from trackers.formats.json_values import MOST_LISTED, to_json_values


class Model:
    """A class with a method."""

    def forward(self) -> None:
        """Nothing."""


POINT = collections.namedtuple("POINT", "x y")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (b"ab", "ab"),
        (b"\xff", "\\xff"),
        (bytearray(b"xy"), [120, 121]),
        (memoryview(b"q"), [113]),
        (collections.deque([1, b"w"]), [1, "w"]),
        (range(2, 9, 3), [2, 5, 8]),
        (range(10**12), "range(0, 1000000000000)"),
        (range(MOST_LISTED + 1), f"range(0, {MOST_LISTED + 1})"),
        (json.dumps, "json.dumps"),
        (len, "builtins.len"),
        (int, "builtins.int"),
        (Model, f"{__name__}.Model"),
        (Model().forward, f"{__name__}.Model.forward"),
        ({3}, [3]),
        (POINT(1, "x"), [1, "x"]),
        (1 + 2j, "1+2j"),
    ],
    ids=lambda one: re.sub(r" at 0x\w+", "", str(one)),
)
def test_value_is_written_as_wandbs_client_writes_it(value: Any, written: Any) -> None:
    """Without an address, and whole; but a long range isn't listed."""
    assert to_json_values(value) == written
    assert to_json_values({"in": [value]}) == {"in": [written]}
