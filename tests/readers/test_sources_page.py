"""The page of sources lists what is read: schemes, columns, files that need no scheme."""

from __future__ import annotations

import re
from pathlib import Path

from tests import ROOT
from trackers.formats import text_file
from trackers.readers import registry
from trackers.readers.csv import DELIMITERS, MISSING, SETTINGS
from trackers.readers.row_layout import ELAPSED, EPOCHS, STEPS, TIMES


def code(text: str) -> list[str]:
    """What a text shows as code."""
    return re.findall(r"`([^`]+)`", text)


def cells(page: str) -> dict[str, str]:
    """The rows of a page's tables by their first cell, without it."""
    lines = [line for line in (ROOT / "docs" / page).read_text().splitlines() if line.startswith("| ")]
    return {line.split("|")[1].strip(): line.split("|", 2)[2] for line in lines}


def passage(page: str, begin: str, end: str) -> str:
    """A page's text between two others, of which it has the first once; its lines joined."""
    text = re.sub(r"\n *", " ", (ROOT / "docs" / page).read_text())
    assert text.count(begin) == 1, begin
    rest = text.partition(begin)[2]
    assert end in rest, end
    return rest.partition(end)[0]


def test_sources_page_lists_what_is_read() -> None:
    """Each scheme has its row, and each such row its scheme."""
    rows = cells("sources.md")
    named = {match[1] for name in rows if (match := re.match(r"`(\w+):", name))}
    assert named == set(registry.schemes()) - {registry.OWN, registry.WANDB_FILE}
    assert {"an id, a name, `latest`, a project, …", "a `.wandb` file, or an offline directory"} <= rows.keys()


def test_sources_page_lists_the_columns_that_are_known() -> None:
    """Steps in the order in which they count, times, those from a start, cells without a value, what is beside."""
    rows = cells("sources.md")
    assert code(rows["step"]) == [*STEPS, *EPOCHS]
    times, since = rows["time"].split(" A `time` that never falls, and ")
    assert code(times) == list(TIMES)
    assert code(since) == [*ELAPSED, "data_time"]
    assert set(code(rows["cells"])) == MISSING - {""}
    assert all(word in rows["cells"] for word in DELIMITERS.values())
    beside = code(passage("sources.md", "Recognised and tested are", "| what |"))
    assert {name for name in beside if name.endswith(".yaml") or name == "params.json"} == set(SETTINGS)


def test_sources_page_lists_files_that_need_no_scheme() -> None:
    """Their patterns with their schemes; how text files may be packed and written."""
    shown, patterns = [], list[str]()
    for name in code(passage("sources.md", "`runs/metrics.csv`):", ", and a `.wandb` file")):
        if name in registry.schemes():
            shown += [(pattern, name) for pattern in patterns]
            patterns = []
        else:
            patterns.append(name)
    assert (shown, patterns) == (list(registry.FILES), [])
    packed = passage("sources.md", "- Text files (", "- If one of several runs")
    suffixes = [Path(name).suffix or name for name in code(packed)]
    assert [name for name in suffixes if name.startswith(".")] == list(text_file.SUFFIXES)
    known = {name.split("-")[1] for _, name in text_file._MARKS} | {"8"}
    assert set(re.findall(r"UTF-(\d+)", packed)) == known
