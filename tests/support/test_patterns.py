"""Every regular expression of the package takes time in proportion to its text, whatever the text is."""

from __future__ import annotations

import re

import pytest

from tests.patterns import Use, grows, uses


@pytest.mark.slow
def test_every_pattern_is_linear() -> None:
    """Texts made from each pattern's own parts, eight times as long, take about eight times as long."""
    every = uses()
    assert len(every) > 100
    slow = {str(use): found for use in every if (found := grows(use, 400, slow_s=0.008))}
    assert not slow


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "method", "size"),
    [
        (r"\d[\d,]*\.?\d*x", "fullmatch", 1000),
        (r"\s*(.*?)\s*(value|PPL)\s*", "fullmatch", 300),
        (r"(a+)+b", "search", 2),
        (r"NCCL.*initiali[sz]", "search", 2000),
        (r"([A-Za-z_]\w*):", "finditer", 700),
    ],
)
def test_patterns_that_are_not_linear_are_found(pattern: str, method: str, size: int) -> None:
    """The search for slow texts finds those of patterns that are known to be slow."""
    assert grows(Use("here", re.compile(pattern), method), size, slow_s=0.001 if size == 2 else 0.02)


def test_pattern_with_a_bounded_window_is_linear() -> None:
    """A look ahead of at most 1,000 characters takes its full time only in texts that are longer."""
    use = Use("here", re.compile(r":[^@]{0,1000}@"), "search")
    assert not grows(use, 400, slow_s=0.001)
    assert grows(Use("here", re.compile(r":[^@]*@"), "search"), 400, slow_s=0.001)
