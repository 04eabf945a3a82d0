"""What can be said of exceptions."""

from __future__ import annotations

from trackers.errors import causes


def test_causes_of_an_exception_end() -> None:
    """Each once, though one is its own cause, or they go round in a circle."""
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__context__ = second, first
    alone = OSError("alone")
    alone.__cause__ = alone
    assert list(causes(first)) == [first, second]
    assert list(causes(alone)) == [alone]
    assert list(causes(None)) == []
