"""The page of the documentation lists the programs that are read, from their tables."""

from __future__ import annotations

import re

from tests import ROOT
from trackers.readers import registry
from trackers.readers.console_log.programs import ALL
from trackers.readers.csv import DELIMITERS, MISSING
from trackers.readers.row_layout import ELAPSED, EPOCHS, STEPS, TIMES

PAGE = ROOT / "docs/console-logs.md"
BEGIN, END = "<!-- programs -->\n\n", "\n<!-- end of programs -->\n"


def table() -> str:
    """The programs by name: a line of each, its step, the releases whose formats are known."""
    lines = ["| program | its rows | step | formats of |", "|---|---|---|---|"]
    for program in sorted(ALL, key=lambda program: program.name.lower()):
        shown = program.shown.replace("|", r"\|")
        releases = "; ".join(label for _, label in program.releases)
        lines.append(f"| {program.name} | `{shown}` | {program.steps} | {releases} |")
    return "\n".join(lines) + "\n"


def test_page_lists_the_programs() -> None:
    """What is between the marks is the table; where it isn't, this is what belongs there."""
    text = PAGE.read_text()
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == table()


def test_sources_page_lists_what_is_read() -> None:
    """Each scheme has its row, console logs their number of programs, and columns that are named are those known."""
    text = (ROOT / "docs/sources.md").read_text()
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}
    for scheme in registry.schemes():
        assert any(re.match(rf"`{scheme}:", name) for name in rows) or scheme in ("wandb-file", "run"), scheme
    assert f"what {len(ALL)} training programs print" in text
    for row, known in (("step", (*STEPS, *EPOCHS)), ("time", (*TIMES, *ELAPSED, "data_time"))):
        named = re.findall(r"`(\w+)`", rows[row].split("|")[2])
        assert set(named) <= set(known), row
        assert len(named) > 5, row
    cells = rows["cells"]
    assert all(missing in MISSING for missing in re.findall(r"`([^`]+)`", cells))
    assert all(word in cells for word in DELIMITERS.values())
