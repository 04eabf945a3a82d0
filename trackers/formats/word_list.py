"""Words in one text, as options have them: ``a,b``; a word with a comma or a quotation mark stands in such marks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_WORD = re.compile(r'\s*(?:"((?:[^"]|"")*)"\s*(?=,|$)|([^,]*))(?:,|$)')


def joined(words: Iterable[Any] | str | None) -> str | None:
    """The text of several words; a text, or None, is one already."""
    if words is None or isinstance(words, str):
        return words
    return ",".join('"{}"'.format(word.replace('"', '""')) if {*',"'} & {*word} else word for word in map(str, words))


def split_words(text: str) -> list[str]:
    """The words of a text, without the blanks around them."""
    found = (quoted.replace('""', '"') or plain for quoted, plain in _WORD.findall(text))
    return list(filter(None, map(str.strip, found)))
