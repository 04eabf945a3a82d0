"""Every regular expression that a log's lines are tried with takes time in proportion to its text."""

from __future__ import annotations

import re

import pytest
from trackers_console_logs.forms import fields as values
from trackers_console_logs.forms.fields import FieldReader
from trackers_console_logs.programs import ALL, megatron
from trackers_console_logs.rows import LineReader

from tests.patterns import Use, grows

FORMS = {
    f"{program.name} {number}": pattern
    for program in ALL
    for number, form in enumerate(program.forms)
    for pattern in (form.pattern, form.damaged, form.following)
    if pattern is not None
}


@pytest.mark.slow
@pytest.mark.parametrize("pattern", FORMS.values(), ids=FORMS)
def test_every_form_of_a_programs_line_is_linear(pattern: re.Pattern[bytes]) -> None:
    """What a log's lines are tried with takes time in proportion to the line."""
    assert not grows(Use("form", pattern, "match"), 400, slow_s=0.008)


def parse(value: bytes) -> list[float]:
    """The numbers of one value, in the log's order."""
    return [values.whole_number(match[1]) for match in values._matches(value.decode())]


LONG = [b"1" * 50_000 + b"x", b"1," * 25_000 + b"x", b"(avg" + b"1" * 50_000, b" " * 50_000, b"a " * 25_000 + b"1"]


@pytest.mark.slow
@pytest.mark.parametrize("text", LONG, ids=lambda text: text[:6].decode())
def test_long_values_are_read_at_once(text: bytes) -> None:
    """Values and lines of 50 kB: with a pattern that looks at each part twice they would take minutes."""
    parse(text)
    FieldReader(megatron.metric_names).read(b"lm loss: " + text + b" | " + text + b" |")
    heads = (b"iteration 1/ 2 | ", b" validation loss at iteration 1 | ", b"step: 1  loss: ", b"completed step: 1, ")
    for head in heads:
        for line in (head + text + b"\n", text + head + b"\n", head + b"lm loss value: " + text + b" | \n"):
            lines = LineReader(2026)
            for row in lines.rows(line):
                lines.fill(row, True)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [(b"12", [12]), (b"1,234", [1234]), (b"2.3E+00", [2.3]), (b"1.2/3.4", [1.2, 3.4]), (b"5.", [5.0]), (b".5", [0.5]),
     (b"5.0 (avg 6.0)", [5.0, 6.0]), (b"7GB/8GB/9%", [7, 8, 9]), (b"1.2.3", []), (b"1e5e5", []), (b"12x", []),
     (b"-3", [-3]), (b"+1,0.5", [10.5]), (b"9" * 30, [float("9" * 30)])],
)  # fmt: skip
def test_numbers_are_what_they_were(text: bytes, numbers: list[float]) -> None:
    """What a value says, in every form; a whole number beyond 64 bits is a float."""
    found = parse(text)
    assert found == numbers
    assert list(map(type, found)) == list(map(type, numbers))


def test_fields_without_a_colon_are_read() -> None:
    """``name number`` is a field; a name with other signs, or a number of twenty digits, is none."""
    fields = FieldReader(megatron.metric_names)
    found = fields.read(b" skipped  3 | a b\t12 | 5 6 | x-y 3 | n " + b"1" * 20 + b" | word |").values
    assert found == {"skipped": 3, "a b": 12}
