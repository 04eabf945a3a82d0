"""Values of a configuration that JSON hasn't: as W&B's client writes them."""

from __future__ import annotations

import array
import collections
import dataclasses
import enum
import functools
import json
import math
import re
from argparse import Namespace
from typing import Any

import numpy as np
import omegaconf
import pytest
import torch

from trackers.formats.json_values import MOST_LISTED, mapping, to_json_values


class Model:
    """A class with a method."""

    def forward(self) -> None:
        """Nothing."""


class Kind(enum.Enum):
    """A kind."""

    ONE = 1


@dataclasses.dataclass
class Args:
    """Settings, one of them computed."""

    batch: int = 8

    def __post_init__(self) -> None:
        self.half = self.batch // 2


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
        (functools.cache(json.dumps), "json.dumps"),
        (np.longdouble(0.5), 0.5),
        (np.array([0.5, np.inf], dtype=np.longdouble), [0.5, math.inf]),
        (int, "builtins.int"),
        (Model, f"{__name__}.Model"),
        (Model().forward, f"{__name__}.Model.forward"),
        ({3}, [3]),
        (POINT(1, "x"), [1, "x"]),
        (1 + 2j, "1+2j"),
        (slice(1, None, 2), {"slice_start": 1, "slice_step": 2, "slice_stop": None}),
        (collections.UserList([1]), [1]),
        ({"a": 1}.keys(), ["a"]),
        (array.array("i", [1, 2]), [1, 2]),
        (np.array([]), []),
        (np.float32, "numpy.float32"),
        ({(1, "b"): 1, True: 2, b"c": 3}, {"1,b": 1, "true": 2, "c": 3}),
        ({Kind.ONE: 4, int: 5, None: 6}, {"1": 4, "builtins.int": 5, "None": 6}),
    ],
    ids=lambda one: re.sub(r" at 0x\w+", "", str(one)),
)
def test_value_is_written_as_wandbs_client_writes_it(value: Any, written: Any) -> None:
    """Without an address, and whole; but a long range isn't listed."""
    assert to_json_values(value) == written
    assert to_json_values({"in": [value]}) == {"in": [written]}


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch moves it to another package
def test_quantized_tensor_is_its_values() -> None:
    """It was the name of its class."""
    values = torch.quantize_per_tensor(torch.tensor([0.5, 1.0]), 0.5, 0, torch.quint8)
    assert to_json_values({"all": values, "one": values[0]}) == {"all": [0.5, 1.0], "one": 0.5}


@pytest.mark.parametrize("container", [{"a": 1}, [1]], ids=str)
def test_what_contains_itself_twice_ends(container: Any) -> None:
    """As text where it comes again: listing it anew at each level never ended."""
    for again in ("one", "other"):
        container.update({again: container}) if isinstance(container, dict) else container.append(container)
    written = to_json_values({"in": container})["in"]
    assert "..." in (written["other"] if isinstance(container, dict) else written[2])
    assert len(json.dumps(written)) < 500


def test_omegaconf_keeps_what_is_missing() -> None:
    """As it is written; what is beside it is resolved."""
    config = omegaconf.OmegaConf.create({"a": "???", "b": {"c": "${oc.env:NOT_THERE}", "d": "${e}"}, "e": [1, "???"]})
    written = {"a": "???", "b": {"c": "${oc.env:NOT_THERE}", "d": [1, "???"]}, "e": [1, "???"]}
    assert mapping(config) == to_json_values(config) == written


def test_configuration_has_what_a_dataclass_computed() -> None:
    """And what a namespace calls private: both are W&B's client's, too."""
    assert mapping(Args()) == {"batch": 8, "half": 4}
    assert mapping(Namespace(_a=1)) == {"_a": 1}
