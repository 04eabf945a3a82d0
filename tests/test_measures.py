"""The package's size and shape, as ``scripts/measure.py`` measures them, don't get worse."""

from __future__ import annotations

import ast
import functools
from typing import Any

import pytest

from tests.test_project import script

measure = script("measure")

MOST_LINES = 117_000
"""Of the package: lower it with each part that moves out."""
MOST_KERNEL_LINES = 30_000
COMPLEX: frozenset[str] = frozenset()
"""Functions above the bound that are yet to be split: take one out with the change that splits it."""
LONG: frozenset[str] = frozenset()
MANY_PARAMETERS: frozenset[str] = frozenset()


@functools.cache
def found() -> dict[str, Any]:
    measured: dict[str, Any] = measure.measured()
    return measured


def names(entries: list[str]) -> set[str]:
    return {entry.rpartition(":")[0] for entry in entries}


def test_package_does_not_grow() -> None:
    """Its lines, and those of the kernel that somebody reads who is to trust it."""
    assert found()["lines"] <= MOST_LINES
    assert found()["kernel lines"] <= MOST_KERNEL_LINES


@pytest.mark.parametrize(("what", "known"), [
    ("too complex", COMPLEX), ("too long", LONG), ("too many parameters", MANY_PARAMETERS),
])  # fmt: skip
def test_no_function_is_above_the_bounds(what: str, known: frozenset[str]) -> None:
    """None but those that are named as yet to be split."""
    assert names(found()[what]) - known == set()


def test_nothing_is_probed_and_imports_point_down() -> None:
    """No member of a contract is asked for by name, no modules import each other around, none imports upwards."""
    assert [found()[what] for what in ("probes", "circles", "upward imports")] == [[], [], []]


def test_kernel_is_listed_by_paths_that_exist() -> None:
    """A module that was renamed would leave the count in silence."""
    paths = [path for part in measure.KERNEL.values() for path in part]
    assert [path for path in paths if not (measure.PACKAGE / path).exists()] == []
    assert len(set(paths)) == len(paths)


def test_prescribed_signatures_exist() -> None:
    """Each exception is a function that takes more than the bound."""
    many = {one.name for one in measure.functions() if one.parameters > measure.PARAMETERS}
    assert set(measure.PRESCRIBED) <= many


@pytest.mark.parametrize(("body", "number"), [
    ("pass", 1), ("if a: pass", 2), ("if a and b or c: pass", 4), ("for x in y: pass", 2), ("while a: pass", 2),
    ("return [x for x in y if x if z]", 4), ("return a if b else c", 2), ("def inner():\n  if a: pass", 1),
    ("try: pass\n except A: pass\n except B: pass", 3), ("match a:\n  case 1: pass\n  case 2: pass\n  case _: pass", 3),
    ("f = lambda: a if b else c", 1),
])  # fmt: skip
def test_complexity_is_counted_by_branches(body: str, number: int) -> None:
    """One, and one more for each way that it can go."""
    (function,) = ast.parse(f"def f():\n {body}").body
    assert isinstance(function, ast.FunctionDef)
    assert measure.complexity(function) == number
