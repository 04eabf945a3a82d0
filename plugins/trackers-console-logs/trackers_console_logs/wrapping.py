"""Logs as they lie on a terminal's page, which wraps long lines at its width."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Union

from trackers_console_logs.lines import split

WIDTHS = range(40, 1001)
BEGINNING = 12
"""Characters of a line that tell what kind of line it is, its digits apart."""
HEAD_BYTES = 1 << 18
"""Bytes of a log that are looked at first, as for a time stamp."""
SAMPLE_BYTES, FULL, BEHIND = 1 << 16, 50, 4
"""Of a log, so much of its beginning is looked at, and so many of its longest lines, each with some behind it."""
LINES = 100
"""Maximum number of lines that one goes on over."""
_NAME = re.compile(r"[{ ]'([^'\n]+)': ")
_STAMP = re.compile(r"\W{0,2}0(?:[-:/.,T]0){2,}")
LINE_BYTES = 1 << 20
"""Maximum number of bytes of a line that are read at once."""


class Page(NamedTuple):
    """A log whose longest lines may go on below.

    width: characters of these; 0: of a log that isn't such a page. begins: how lines begin that continue no other.
    stamps: of these, the stamps of time.
    doubtful: nothing tells whether the lines go on or are cut, so that their last values count as cut.
    """

    width: int = 0
    begins: Collection[str] = frozenset()
    stamps: Collection[str] = frozenset()
    doubtful: bool = False


NO_PAGE = Page()


class Said(NamedTuple):
    """What a reading of a log says. rows: the values of each, as text; values: how many. bad: lines that aren't
    understood."""

    rows: Sequence[str]
    values: int
    bad: int


Probe = Callable[[bytes], Union[bool, None]]
"""Tells whether a line is a row that is whole; None: it is none. They are asked one after the other."""


def page_of(lines: Iterable[bytes], said: Callable[[bytes, Page], Said], probe: Callable[[], Probe]) -> Page:
    """Whether a log's lines were wrapped: joined, they say other values in no fewer rows, and no line less is
    understood. Where one line alone goes on, a value was cut, too, or nothing tells whether it does.

    Args:
        lines: of the log. said: reads a part of it.
    """
    sample, width = _sample(lines)
    if width not in WIDTHS:
        return NO_PAGE
    texts = sample.decode("utf-8", "replace").replace("\r", "").split("\n")[:-1]
    behind = {number for number, text in enumerate(texts, 1) if len(text) == width and not _is_rule(text.encode())}
    begins = {begin for number, text in enumerate(texts) if number not in behind and _tells(begin := _begin(text))}
    stamps = {stamp[0] for begin in begins if (stamp := _STAMP.match(begin))}
    page = Page(width, frozenset(begins), frozenset(stamps))
    split = sample.splitlines(keepends=True)
    joined = len(split) - sum(1 for _ in unwrapped(split, page, probe()))
    if not joined:
        return NO_PAGE
    plain, whole = said(sample, NO_PAGE), said(sample, page)
    if len(whole.rows) < len(plain.rows) or whole.values < plain.values or whole.bad > plain.bad:
        return NO_PAGE
    if whole.rows == plain.rows or _is_in_a_name(plain.rows, whole.rows):
        return NO_PAGE  # at most a line is hidden in another that it would be the rest of
    added = all(one.startswith(other[:-1]) for one, other in zip(whole.rows, plain.rows, strict=False))
    sure = joined > 1 or whole.bad < plain.bad or (whole.values > plain.values and (not added or not plain.rows))
    return page._replace(doubtful=not sure)


def _is_in_a_name(plain: Sequence[str], whole: Sequence[str]) -> bool:
    """Whether a value of lines by themselves is a part of a name where they are joined: what follows isn't its rest."""
    before, names = (Counter(_NAME.findall("\n".join(rows))) for rows in (plain, whole))
    odd = "\n".join(name for name in names if ":" in name or "=" in name)
    return any(re.search(re.escape(name) + "[ ]*[:=]", odd) for name in before - names)


def unwrapped(lines: Iterable[bytes], page: Page, probe: Probe) -> Iterator[tuple[int, bytes]]:
    """Lines and the number of each, wrapped ones joined; doubtful ones lack their end."""
    if not page.width:
        yield from enumerate(lines, 1)
        return
    for number, run in _runs(lines, page):
        first = number
        while run:
            count = _wrapped(run, probe)
            joined, ends = [line.rstrip(b"\r\n") for line in run[: count - 1]], run[count - 1]
            if page.doubtful and joined:
                yield first, joined[0]
                joined, ends, count = [], b"", 1
            if ends:
                yield first, b"".join(joined) + ends
            run, first = run[count:], first + count


def _wrapped(run: Sequence[bytes], probe: Probe) -> int:
    """Of how many lines of a page, of which each may go on in the next, the first text is: those of a whole row, or all
    where there is none; but those before another row that is whole by itself."""
    texts = [line.rstrip(b"\r\n") for line in run]
    if len(run) == 1:
        probe(run[0])
        return 1

    def tell(begin: int, end: int) -> bool | None:
        return probe(b"".join(texts[begin : end - 1]) + run[end - 1])

    whole = next((count for count in range(len(run), 0, -1) if tell(0, count)), 0)
    count = whole or len(run)
    begun = (end for end in range(1, count) if tell(end, end + 1) is not None)
    said = ((end, tell(0, end), tell(end, count)) for end in begun)
    first = next((end for end, before, rest in said if rest and (before or not whole)), count)
    if not whole or first < count:
        tell(0, first)  # such as columns' names
    return first


def _runs(lines: Iterable[bytes], page: Page) -> Iterator[tuple[int, list[bytes]]]:
    """Lines of which each may go on in the next, as that doesn't begin as lines do, and the number of the first."""
    run: list[bytes] = []
    for number, line in enumerate(chain(lines, (b"",)), 1):
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        full = bool(run) and _length(run[-1]) == page.width and not _is_rule(run[-1])
        begin = _begin(text)
        other = begin in page.begins or ((stamp := _STAMP.match(begin)) and stamp[0] in page.stamps)
        other = other or (full and _label(line) != b"" and _label(run[0]).startswith(_label(line)))  # a launcher's
        if run and not (line and full and len(run) < LINES and not other):
            yield number - len(run), run
            run = []
        run.append(line)


def _label(line: bytes) -> bytes:
    prefix = split(line)[0]
    return prefix.label if prefix else b""


def _length(line: bytes) -> int:
    text = line.rstrip(b"\r\n")
    return len(text) if text.isascii() else len(text.decode("utf-8", "replace"))


def _is_rule(line: bytes) -> bool:
    """Whether a line is drawn, as across a page."""
    return re.search(rb"[A-Za-z0-9]", line) is None


def _begin(text: str) -> str:
    return re.sub(r"[\d ]+", "0", text[: 4 * BEGINNING])[:BEGINNING]


def _tells(begin: str) -> bool:
    """Whether a beginning is no end of a value, such as ``00`` or ``e-05``."""
    return re.search(r"[A-Za-z]{3}|\d[-:/]\d", begin) is not None or not re.search(r"\w", begin)


def _sample(lines: Iterable[bytes]) -> tuple[bytes, int]:
    """A log's beginning and the longest of its later lines, and the length of these; 0 where a line was overwritten."""
    head: list[bytes] = []
    size, width, due = 0, 0, 0
    found: list[bytes] = []
    count = 0
    before = b""
    for line in lines:
        if b"\r" in line.rstrip(b"\r\n") or b"\x1b" in line:
            return b"", 0
        if len(line) > width and (length := _length(line)) >= width:
            found, count, width = (found, count, width) if length == width else ([], 0, length)
            if count < FULL:
                found += [before] * (due == 0)
                count, due = count + 1, BEHIND + 1
        if size < SAMPLE_BYTES:
            head.append(line)
            size += len(line)
            found, due = [], max(0, due - 1)
        elif due:
            found.append(line)
            due -= 1
        before = line
    return b"".join([*head, *found]), width
