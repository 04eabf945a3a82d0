"""Tables and pictures in a report: the last of each run, bounded, and nothing of them obeyed."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.analysis.support import T0, write_run
from trackers.analysis import report_media
from trackers.analysis.curves import open_runs
from trackers.analysis.report import markdown
from trackers.plotting.html_page import as_html
from trackers.records import Media, MediaFile

HOSTILE = "<script>alert(1)</script>|x](y)"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs lie in the test's own directory."""
    monkeypatch.chdir(tmp_path)


def table(step: int, rows: list[list[Any]], name: str = "t", columns: str = "id text loss right") -> Media:
    """A record of a table."""
    data = {"columns": columns.split(), "rows": rows}
    return Media(name=name, type="table", items=[MediaFile(format="json", data=data)], step=step, time=T0)


def text(*sources: str, pictures: bool = False) -> str:
    """The report of runs."""
    return "\n".join(report_media.sections(open_runs(sources), pictures=pictures))


def test_tables_are_summed_up_beside_each_other() -> None:
    """The last of each run: rows and means; of two runs how many rows differ."""
    write_run("one", more=[table(1, []), table(2, [[0, HOSTILE, 1.0, True], [1, "b", 3.0, False]])])
    write_run("two", more=[table(9, [[1, "b", 4.0, False], [0, HOSTILE, 1.0, True], [2, "c", 1.0, True]])])
    found = text("one", "two")
    assert "| one | 2 | 2 | 2 | 0.5 |" in found
    assert "| two | 9 | 3 | 2 | 0.66667 |" in found
    assert "Rows by id: 1 changed, 1 added, 0 removed, 1 the same; loss 1." in found
    whole = markdown(open_runs(["one", "two"]), when="now")
    assert whole.index("## Results") < whole.index("## Tables") < whole.index("## Runs")


CONFUSIONS = (
    ("Actual Predicted nPredictions", [["cat", "cat", 9], ["cat", "dog", 1], ["dog", "dog", 8]]),
    ("actual cat dog", [["cat", 9, 1], ["dog", 2, 8]]),
    ("0 1 2", [[9, 1, 0], [2, 8, 0], [0, 0, 7]]),
)


@pytest.mark.parametrize(("columns", "rows"), CONFUSIONS)
def test_counts_of_classes_have_no_mean(columns: str, rows: list[list[Any]]) -> None:
    """A confusion matrix, in whichever form, isn't averaged."""
    for name in ("one", "two", "three"):
        write_run(name, more=[table(1, rows, columns=columns)])
    found = text("one", "two", "three")
    assert f"| one | 1 | {len(rows)} |" in found
    assert "mean" not in found


def test_table_of_one_run_has_its_first_rows() -> None:
    """Ten rows of eight columns, texts cut; what it contains is text."""
    rows = [[HOSTILE if k == 0 else "w" * 500, *range(11)] for k in range(50)]
    write_run("one", more=[table(1, rows, HOSTILE, " ".join(f"c{k}" for k in range(12)))])
    found = text("one")
    lines = [line for line in found.splitlines() if line.startswith("| ")]
    assert len(lines) == 3 + 12
    assert max(line.count(" | ") for line in lines[3:]) == 7
    assert "40 more rows" in found
    assert max(map(len, lines[5:])) < 200
    page = as_html(found)
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;|x](y)" in page


def test_pictures_of_the_last_step_are_side_by_side() -> None:
    """As data of the page, made small; a run without one has an empty place; Markdown for a terminal has none."""
    for name, count in (("one", 6), ("two", 1)):
        path = write_run(name)
        (path / "media").mkdir(exist_ok=True)
        np.save(path / "media/a.npy", np.full((8, 8), 100, np.uint8))
        Image.new("P", (1000, 500)).save(path / "media/b.gif")
        items = [MediaFile(format="npy", file="media/a.npy", caption=HOSTILE)] * count
        items.append(MediaFile(format="gif", file="media/b.gif"))
        old = Media(name=HOSTILE, type="image", items=[], step=1, time=T0)
        write_run(name, more=[old, Media(name=HOSTILE, type="image", items=items, step=7, time=T0 + 1)])
    found = text("one", "two", pictures=True)
    assert "one, step 7 | two, step 7" in found
    page = as_html(found)
    assert page.count("<img ") == report_media.ITEMS + 2
    assert re.findall(r'src="(?!data:image/png;base64,)', page) == []
    assert "<script>" not in page
    assert text("one", "two") == ""


def test_pictures_that_can_not_be_shown_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of the run, links, pipes, pages, damaged, too large."""
    path = write_run("one")
    (path / "media").mkdir(exist_ok=True)
    Image.new("RGB", (4, 4)).save("secret.png")
    (path / "media/link.png").symlink_to(Path("secret.png").resolve())
    os.mkfifo(path / "media/pipe.png")
    (path / "media/damaged.png").write_bytes(b"\x89PNG\r\n")
    (path / "media/page.svg").write_text("<svg><script>alert(1)</script></svg>")
    Image.new("RGB", (300, 300)).save(path / "media/large.png")
    monkeypatch.setattr(report_media, "PICTURE_PIXELS", 1000)
    Image.new("1", (14_000, 14_000)).save(path / "media/bomb.png")
    files = ("../../../secret.png", "media/bomb.png", "media/link.png", "media/pipe.png", "media/damaged.png",
             "media/page.svg", "media/large.png", "media/none.png", "")  # fmt: skip
    items = [MediaFile(format=file.rpartition(".")[2], file=file) for file in files]
    write_run("one", more=[Media(name=f"p{k}", type="image", items=[item], time=T0) for k, item in enumerate(items)])
    assert text("one", pictures=True) == ""


def test_tables_that_can_not_be_read_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing file, one that is too large, what is no table; of many names the first six are there."""
    path = write_run("one")
    (path / "media").mkdir(exist_ok=True)
    (path / "media/0.json").write_text('{"columns": ["a"], "rows": [[1]]}')
    monkeypatch.setattr(report_media, "TABLE_BYTES", 10)
    bad = [
        Media(name=name, type="table", items=[item], time=T0)
        for name, item in (
            ("large", MediaFile(format="json", file="media/0.json")),
            ("gone", MediaFile(format="json", file="media/1.json")), ("odd", MediaFile(format="json", data=[1])),
        )
    ]  # fmt: skip
    write_run("one", more=bad)
    assert text("one") == ""
    write_run("one", more=[table(1, [], f"t{k}") for k in range(9)])
    found = text("one")
    assert found.count("### ") == 6
    assert "3 more: `trackers tables RUN`" in found
