"""Tests of what all trackers or sources must stand, made again for those that a plug-in brings."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import pytest


def with_values(test: Callable[..., None], values: Sequence[Any]) -> Callable[..., None]:
    """A test that has one list of values, with another one."""
    copy = types.FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__)
    copy.__doc__, copy.__annotations__, copy.__kwdefaults__ = test.__doc__, test.__annotations__, test.__kwdefaults__
    marks = list(getattr(test, "pytestmark", []))
    (given,) = [mark for mark in marks if mark.name == "parametrize"]
    copy.pytestmark = [
        *(mark for mark in marks if mark is not given),
        pytest.mark.parametrize(given.args[0], values).mark,
    ]  # type: ignore[attr-defined]
    return copy
