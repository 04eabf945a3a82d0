"""Values as Aim's store takes them; no Aim is needed for these."""

from __future__ import annotations

import math

import pytest
from trackers_aim import values


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (True, 1),
        (2**63 - 1, 2**63 - 1),
        (2**63, float(2**63)),
        (-(2**64), -float(2**64)),
        (10**400, math.inf),
        (0.5, 0.5),
    ],
)
def test_numbers(given: int | float, kept: int | float) -> None:
    """Integers beyond 64 bits are doubles, and those beyond doubles infinite."""
    found = values.number(given)
    assert (found, type(found)) == (kept, type(kept))


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("system.cpu", ("__system__cpu", {})),
        ("system.gpu.0.gpu", ("__system__gpu", {"gpu": 0})),
        ("system.gpu.3.memoryAllocated", ("__system__gpu_memory_percent", {"gpu": 3})),
        ("system.gpu.1.smClock", ("__system__smClock", {"gpu": 1})),
        ("system.gpu.process.x", ("__system__gpu.process.x", {})),
        ("system.gpu.01.x", ("__system__gpu.01.x", {})),
    ],
)
def test_names_of_the_machine(name: str, stored: tuple[str, dict[str, int]]) -> None:
    """Samples have the names that Aim itself gives them, GPUs their number as a context."""
    assert values.machine(name) == stored


def test_configuration_is_what_a_tree_holds() -> None:
    """Wide integers are text, keys are never empty."""
    given = {"": 1, "wide": 2**70, "list": [1, (2, None)], "nested": {3: True}}
    assert values.to_stored(given) == {"_": 1, "wide": str(2**70), "list": [1, [2, None]], "nested": {"3": True}}
