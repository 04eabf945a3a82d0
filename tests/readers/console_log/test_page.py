"""The page of the documentation lists the programs that are read, from their tables."""

from __future__ import annotations

from tests import ROOT
from trackers.readers.console_log.programs import ALL

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
