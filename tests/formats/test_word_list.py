"""Several words in one text, as options have tags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackers.formats.word_list import joined, split_words


@given(st.lists(st.text(min_size=1).map(str.strip).filter(bool), max_size=5))
def test_words_come_back(words: list[str]) -> None:
    """Whatever they hold: commas, quotation marks, blanks inside."""
    assert split_words(joined(words) or "") == words


@pytest.mark.parametrize(("text", "words"), [
    ("a,b", ["a", "b"]), (" a , b ,,", ["a", "b"]), ("", []), ('"a, b",c', ["a, b", "c"]), ('a "b", c', ['a "b"', "c"]),
    ('"a" , b', ["a", "b"]), ('"open, b', ['"open', "b"]), ('say ""', ['say ""']),
])  # fmt: skip
def test_text_that_somebody_wrote_is_read(text: str, words: list[str]) -> None:
    """As flags and variables have it: blanks don't count, and marks only where they are around a whole word."""
    assert split_words(text) == words
