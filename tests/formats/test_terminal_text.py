"""What a program wrote to a terminal, as lines."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tqdm import tqdm

from trackers.formats.terminal_text import LINE_CHARACTERS, TerminalText
from trackers.support.redaction import LineMask


def shown(*pieces: bytes) -> list[str]:
    """The lines of what was written in these pieces."""
    text = TerminalText()
    lines = [line for piece in pieces for line in text.feed(piece, 1.0)]
    return [line.text for line in [*lines, *text.finish()]]


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb", ["a", "b"]),
        (b"\n\nx\n", ["", "", "x"]),
        (b"10%\r55%\r100%\ndone\n", ["100%", "done"]),
        (b"longer\rshort\n", ["shortr"]),
        (b"longer\r\x1b[Kshort\n", ["short"]),
        (b"ab\bc\n", ["ac"]),
        (b"\x1b[1;31mred\x1b[0m plain\n", ["red plain"]),
        (b"\x1b]0;a title\x07text\n", ["text"]),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", ["link"]),
        (b"bad \xff byte\n", ["bad \N{REPLACEMENT CHARACTER} byte"]),
        (b"a\x00b\x07c\td\n", ["abc\td"]),
        (b"first\nsecond\n\x1b[2Aone\x1b[K\ntwo\x1b[K\n", ["one", "two"]),
        (b"\x1b[2J\x1b[Hcleared\n", ["cleared"]),
        (b"a bar\r     \r\nnext\n   \n\nend\n", ["next", "", "", "end"]),
        (b"a bar\r\x1b[2K\nnext\n", ["next"]),
        ("été ✓\n".encode(), ["été ✓"]),
    ],
)
def test_line_is_what_stays_on_the_terminal(written: bytes, lines: list[str]) -> None:
    """Carriage returns, backspaces, colours and movements are followed or removed."""
    assert shown(written) == lines


PASSWORD = b"Summer.Rain2026x9"
KEY = b"ghp_" + b"a1B2c3D4e5F6" * 3


@pytest.mark.parametrize(
    "pieces",
    [
        (b"\rpassword=" + PASSWORD + b"\rdone\n",),
        (b"\rpassword=" + PASSWORD, b"\rdo", b"ne\n"),
        (b"password=" + PASSWORD[:5], PASSWORD[5:] + b"\r", b"d", b"one\n"),
        (b"password=" + PASSWORD + b"\n\x1b[Adone\n\n",),
        (b"a\nb\npassword=" + PASSWORD + b"\nc\n\x1b[2Ad\n\n\n",),
        (b"password=" + PASSWORD + b"\x1b[26Ddone\n",),
        (b"pass\x00word=" + PASSWORD + b"\rdone\n",),
        (b"pass\x1b[31mword\x1b[0m=" + PASSWORD + b"\rdone\n",),
        (b"curl -u me:" + PASSWORD + b"\rdone\n",),
        (b"https://me:" + PASSWORD + b"@host/x\rdone\n",),
        (KEY + b"\rdone\n",),
        (KEY + b"\b\b\x1b[K\n",),
        (KEY + b"\b\b\x1b[J\n",),
        (b"x " * 8180 + KEY + b" and more\n",),
    ],
)
def test_overwriting_and_cutting_leave_no_secret(pieces: tuple[bytes, ...]) -> None:
    """What is overwritten in part was masked before: the rest has no name and no form any more."""
    left = "\n".join(LineMask().lines(shown(*pieces)))
    for secret in (PASSWORD.decode(), KEY.decode()):
        assert not any(secret[place : place + 6] in left for place in range(len(secret) - 5)), left


def test_rows_that_are_overwritten_without_end_are_dropped() -> None:
    """Looking at each state would take longer than writing it: what was there goes, unmasked text never stays."""
    row, over = b"x y " * 4000, b"".join(b"\b\b%d" % (place % 10) for place in range(2000))
    first, following = shown(row + b"password=" + PASSWORD + over + b"\rdone\n", b"next\n")
    assert "x y" not in first
    assert PASSWORD.decode()[:6] not in first
    assert following == "next"


@pytest.mark.slow
@given(st.lists(st.sampled_from(["a", "é", "\n", "\r", "\b", "\x1b[K", "\x1b[31m", "\x1b]0;t\x07", "bc"])), st.data())
def test_lines_are_the_same_however_the_bytes_are_cut(parts: list[str], data: st.DataObject) -> None:
    """A character or a sequence may be in two pieces."""
    written = "".join(parts).encode()
    cut = data.draw(st.integers(0, len(written)))
    assert shown(written[:cut], written[cut:]) == shown(written)


@pytest.mark.heavy
@given(st.lists(st.binary(max_size=30), max_size=10))
def test_any_bytes_give_lines(pieces: list[bytes]) -> None:
    """Nothing raises, and no line holds what a terminal obeys."""
    lines = shown(*pieces)
    assert all(char.isprintable() or char == "\t" or ord(char) > 126 for line in lines for char in line)


@pytest.mark.slow
@given(st.lists(st.sampled_from([b"a", b"b\n", b"\r50%", b"\rdone\n", b"c\nd"])), st.data())
def test_what_begins_again_where_it_was_settled_repeats_and_lacks_no_line(parts: list[bytes], data: object) -> None:
    """A process that goes on there after another was killed gives the lines that are left."""
    assert isinstance(data, st.DataObject)
    stop = data.draw(st.integers(0, len(parts)))
    first = TerminalText()
    lines = [line.text for part in parts[:stop] for line in first.feed(part, 1.0)]
    second = TerminalText(first.settled)
    rest = b"".join(parts)[first.settled :]
    lines += [line.text for line in second.feed(rest, 1.0)] + [line.text for line in second.finish()]
    assert lines == shown(b"".join(parts))


def test_bars_below_each_other_are_a_line_each() -> None:
    """As tqdm draws a bar inside of another one, and writes lines above both."""
    written: list[bytes] = []

    class Terminal(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text.encode())
            return len(text)

    file = Terminal()
    for epoch in tqdm(range(2), file=file, desc="epochs", ncols=60, mininterval=0):
        for _ in tqdm(range(5), file=file, desc=f"epoch {epoch}", leave=False, ncols=60, mininterval=0):
            pass
        tqdm.write(f"epoch {epoch} is over", file=file)
    lines = [line for line in shown(b"".join(written)) if line]
    assert [line for line in lines if "over" in line] == ["epoch 0 is over", "epoch 1 is over"]
    assert len(lines) == 3
    assert lines[-1].startswith("epochs: 100%")


def test_very_long_line_is_cut_and_says_so() -> None:
    """10 MB without a newline take no more memory than a line may have."""
    text = TerminalText()
    for _ in range(100):
        assert text.feed(b"x" * 100_000, 1.0) == []
    (line,) = text.feed(b"\nnext", 1.0)
    assert line.text == "x" * LINE_CHARACTERS + f" … ({10_000_000 - LINE_CHARACTERS:,} more characters)"
    assert [row.text for row in text.unfinished()] == ["next"]


def test_line_has_the_time_at_which_it_was_last_written_to() -> None:
    """A progress bar is as old as its last state."""
    text = TerminalText()
    text.feed(b"10%", 1.0)
    text.feed(b"\r20%", 2.0)
    assert text.feed(b"\nlater\n", 3.0) == [("20%", 2.0), ("later", 3.0)]
