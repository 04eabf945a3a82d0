"""What the live page's server says of logged tables: pages, two side by side, cells' files; within bounds."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

from tests.analysis.support import T0, write_run
from tests.ui.support import Site, site
from trackers.records import Media, MediaFile, Span
from trackers.ui import answers, tables
from trackers.ui.tables import TableCache


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs lie in the test's own directory."""
    monkeypatch.chdir(tmp_path)


def table(step: int | None, rows: list[list[Any]], columns: str = "id text loss image", name: str = "t") -> Media:
    """A record of a table."""
    data = {"columns": columns.split(), "rows": rows}
    return Media(name=name, type="table", items=[MediaFile(format="json", data=data)], step=step, time=T0)


def image(file: str, form: str = "npy", kind: str = "image") -> dict[str, Any]:
    """A cell."""
    return {"_type": kind, "format": form, "file": file, "caption": "<b>c</b>"}


def page(found: Site, key: str, **more: Any) -> Any:
    """A page of the table t."""
    return found.ask("rows", run=key, name="t", **more)


def test_page_of_a_table_is_searched_and_sorted() -> None:
    """Rows with their numbers in the whole table; numbers that JavaScript hasn't are texts, long texts are cut."""
    rows = [[k, "x" * 5000 if k == 1 else f"text {k}", k / 2, None] for k in range(120)]
    rows[2][0] = 2**60
    write_run("one", more=[table(1, rows[:3]), table(2, rows)])
    with site(runs=1) as found:
        key = found.key("one")
        named = found.ask("tables", runs=key)
        assert named["tables"] == [{"name": "t", "runs": {key: [1, 2]}}]
        assert named["runs"] == [{"key": key, "name": "one"}]
        whole = page(found, key)
        assert (len(whole["rows"]), whole["total"], whole["size"], whole["step"]) == (50, 120, 120, 2)
        assert [one["kind"] for one in whole["columns"]] == ["integer", "text", "number", "text"]
        assert whole["rows"][2][0] == str(2**60)
        assert len(whole["rows"][1][1]) == 2000
        assert page(found, key, place=0)["size"] == 3
        last = page(found, key, where="loss>10", sort="loss", descending=1, first=2, most=2)
        assert (last["places"], last["total"]) == ([117, 116], 99)
        status, headers, content = found.get(f"table?{urlencode({'run': key, 'name': 't', 'where': 'loss>58'})}")
        assert (status, headers["content-type"]) == (200, "text/csv; charset=utf-8")
        assert [row[0] for row in csv.reader(io.StringIO(content.decode()))] == ["id", "117", "118", "119"]


def test_samples_that_share_a_row_have_one_each() -> None:
    """verl logs a row a step, three columns a sample, and repeats the rows before: shown are those of the last one."""
    columns = "step input_1 output_1 score_1 input_2 output_2 score_2"
    rows = [[1, "a", "b", 0.0, "c", "d", 1.0], [2, "e", "f", 0.5, "g", "h", 1.5]]
    write_run("one", more=[table(1, rows[:1], columns), table(2, rows, columns)])
    with site(runs=1) as found:
        best = page(found, found.key("one"), sort="score", descending=1)
        assert [one["name"] for one in best["columns"]] == ["step", "input", "output", "score"]
        assert best["rows"] == [[2, "g", "h", 1.5], [2, "e", "f", 0.5]]
        assert page(found, found.key("one"), place=0)["rows"] == [[1, "a", "b", 0.0], [1, "c", "d", 1.0]]


def test_cells_files_are_shown() -> None:
    """Pictures, arrays and sounds as such; what a browser would run is saved; captions are texts."""
    cells = [image("media/a.npy"), image("media/v.npy", kind="video"), image("media/s.wav", "wav", "audio"),
             image("media/x.svg", "svg"), image("media/h.html", "html", "html")]  # fmt: skip
    path = write_run("one", more=[table(1, [[k, "", 0, cell] for k, cell in enumerate(cells)])])
    (path / "media").mkdir(exist_ok=True)
    np.save(path / "media/a.npy", np.zeros((4, 4), np.uint8))
    np.save(path / "media/v.npy", np.zeros((2, 4, 4, 3), np.uint8))
    for name in ("s.wav", "x.svg", "h.html"):
        (path / "media" / name).write_text("<script>alert(1)</script>")
    with site(runs=1) as found:
        key = found.key("one")
        shown = page(found, key)["rows"]
        assert [row[3]["shown"] for row in shown] == [True, True, True, False, False]
        assert shown[0][3]["caption"] == "<b>c</b>"
        kinds = []
        for row in range(5):
            about = urlencode({"run": key, "name": "t", "row": row, "column": 3})
            status, headers, _ = found.get(f"cell?{about}")
            assert status == 200
            kinds.append((headers["content-type"], "content-disposition" in headers))
        assert kinds == [("image/png", False), ("image/gif", False), ("audio/wav", False),
                         ("application/octet-stream", True), ("application/octet-stream", True)]  # fmt: skip


@pytest.mark.parametrize(
    "file", ["../../../secret.png", "/etc/passwd", "media/link.png", "linked/secret.png", "media/pipe.png", "", "media"]
)
def test_cell_outside_of_the_run_is_not_read(file: str) -> None:
    """Whatever a table names, and whatever lies in a run's directory."""
    Path("secret.png").write_bytes(b"secret")
    path = write_run("one", more=[table(1, [[0, "", 0, image(file, "png")]])])
    (path / "media").mkdir(exist_ok=True)
    (path / "media/link.png").symlink_to(Path("secret.png").resolve())
    (path / "linked").symlink_to(Path.cwd())
    os.mkfifo(path / "media/pipe.png")
    with site(runs=1) as found:
        about = {"run": found.key("one"), "name": "t", "row": 0, "column": 3}
        status, _, content = found.get(f"cell?{urlencode(about)}")
        assert (status, content[:8]) == (404, b'{"error"')
        for more in ({"row": 1}, {"row": -1}, {"column": 0}, {"column": 9}, {"place": 5}, {"name": "x"}):
            assert found.get(f"cell?{urlencode({**about, **more})}")[0] == 404


def test_two_tables_are_side_by_side() -> None:
    """A row for each pair, with the cells of both, their change, and where they stand in each table."""
    write_run("one", more=[table(1, [[0, "a", 1.0, image("x")], [1, "b", 2.0, None], [2, "c", 3.0, None]])])
    write_run("two", more=[table(5, [[2, "c", 3.0, None], [0, "a", 1.5, image("y")], [7, "d", float("inf"), None]])])
    with site(runs=2) as found:
        one, two = found.key("one"), found.key("two")
        about = {"run": one, "other": two, "name": "t", "on": "id"}
        answer = found.ask("differences", **about, sort="id")
        assert answer["counts"] == {"changed": 1, "added": 1, "removed": 1, "same": 1}
        assert answer["steps"] == [1, 5]
        assert [(column["name"], column["key"], column["cells"]) for column in answer["columns"]] == [
            ("id", True, [1]), ("text", False, [2, 3]), ("loss", False, [4, 5, 6]), ("image", False, [7, 8]),
        ]  # fmt: skip
        first, removed, added = answer["rows"]
        assert (first[0], first[4:7]) == ("changed", [1.0, 1.5, 0.5])
        assert (removed[0], removed[2:4], added[0], added[5]) == ("removed", ["b", None], "added", "Infinity")
        assert answer["places"] == [[0, 1], [1, -1], [-1, 2]]
        assert found.ask("differences", **about, all=1)["total"] == 4
        assert found.ask("differences", **about, where="state:added")["total"] == 1
        assert found.ask("differences", run=one, other=two, name="t")["counts"]["changed"] == 3


def test_wrong_questions_have_a_reason() -> None:
    """What isn't there, a search that can't be understood, a table that can't be read."""
    broken = Media(name="broken", type="table", items=[MediaFile(format="json", file="media/1.json")], time=T0)
    odd = [
        Media(name=f"odd{k}", type="table", items=items, time=T0)
        for k, items in enumerate([[], [MediaFile(format="json", data={"columns": 5, "rows": []})]])
    ]
    write_run("one", more=[table(1, [[0, "a", 1.0, None]]), broken, *odd])
    with site(runs=1) as found:
        key = found.key("one")
        for about, status in [
            ({"name": "x"}, 404), ({"name": "t", "place": 7}, 404), ({"name": "t", "where": "loss>x"}, 400),
            ({"name": "t", "sort": "nothing"}, 404), ({"name": "broken"}, 404), ({"name": "odd0"}, 404),
            ({"name": "odd1"}, 404), ({"name": "t", "most": "many"}, 400), ({"name": "t", "run": "none"}, 404),
        ]:  # fmt: skip
            got, _, content = found.get(f"api/rows?{urlencode({'run': key, **about})}")
            assert (got, list(json.loads(content))) == (status, ["error"]), about
        given = {"run": key, "other": key, "name": "t", "on": "nothing"}
        assert found.get(f"api/differences?{urlencode(given)}")[0] == 404


@pytest.mark.heavy
def test_large_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page has 500 rows, 200 columns and 20,000 cells at most; a file that is too large is named; CSV has an end."""
    wide = [[k] * 300 for k in range(600)]
    many = [[k, k] for k in range(3000)]
    columns = " ".join(f"c{k}" for k in range(300))
    path = write_run("one", more=[table(1, wide, columns), table(1, many, "a b", "many"),
                                  Media(name="file", type="table", time=T0,
                                        items=[MediaFile(format="json", file="media/1.json")])])  # fmt: skip
    (path / "media").mkdir(exist_ok=True)
    (path / "media/1.json").write_text(json.dumps({"columns": ["a"], "rows": [[1]] * 100}))
    monkeypatch.setattr(tables, "MOST_SAVED", 5000)
    with site(runs=1) as found:
        key = found.key("one")
        answer = page(found, key, most=10**9)
        assert (len(answer["rows"]), len(answer["columns"]), answer["more"]) == (100, 200, 100)
        answer = found.ask("rows", run=key, name="many", most=10**9)
        assert len(answer["rows"]) == 500
        assert found.get(f"table?{urlencode({'run': key, 'name': 'many'})}")[0] == 400
        monkeypatch.setattr(tables.media, "FILE_BYTES", 100)
        status, _, content = found.get(f"api/rows?{urlencode({'run': key, 'name': 'file'})}")
        assert (status, b"can't be shown" in content) == (404, True)


def test_shelf_keeps_what_was_looked_at_last() -> None:
    """Within its size; what is larger than all of it is kept alone, for who looks at it."""
    made: list[str] = []

    def get(key: str, size: int) -> str:
        found: str = shelf.get(key, lambda: made.append(key) or key, lambda _: size)  # type: ignore[func-returns-value]
        return found

    shelf = TableCache(10)
    for key, size in (
        ("a", 4),
        ("b", 4),
        ("a", 4),
        ("c", 4),
        ("a", 4),
        ("b", 4),
        ("large", 100),
        ("large", 100),
        ("a", 4),
    ):
        assert get(key, size) == key
    assert made == ["a", "b", "c", "b", "large", "a"]


def test_media_of_several_runs_are_named() -> None:
    """With the steps of each run, pictures first; tables have their own page."""
    picture = [
        Media(name="p", type="image", items=[MediaFile(format="png", file="x.png")], step=k, time=T0) for k in (1, 2)
    ]
    sound = Media(name="s", type="audio", items=[MediaFile(format="wav", file="x.wav")], time=T0)
    write_run("one", more=[sound, *picture, table(1, [])])
    write_run("two", more=[picture[0]])
    with site(runs=2) as found:
        one, two = found.key("one"), found.key("two")
        answer = found.ask("gallery", runs=f"{one},{two},gone")
        assert answer["media"] == [
            {"name": "p", "type": "image", "runs": {one: [1, 2], two: [1]}},
            {"name": "s", "type": "audio", "runs": {one: [None]}},
        ]
        assert [run["name"] for run in answer["runs"]] == ["one", "two"]
        assert answer["problems"] == ["there is no such run (any more)"]


def test_spans_are_listed_by_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest traces, and the rows of one, within bounds; of a run without spans there are none."""
    used = {"gen_ai.usage.input_tokens": 5}
    spans = [
        Span(
            time=T0 + k + 1, began=T0 + k, name=f"s{k}", trace=f"t{k % 3}", span=f"{k}",
            parent="" if k < 3 else f"{k % 3}", inputs="x" * 5000, outputs=math.nan, attributes=used,
        )
        for k in range(9)
    ]  # fmt: skip
    write_run("one", more=spans)
    write_run("none")
    monkeypatch.setattr(answers, "MOST_SPANS", 2)
    monkeypatch.setattr(answers, "MOST_TRACES", 2)
    with site(runs=2) as found:
        assert found.ask("spans", run=found.key("none")) == {"traces": [], "total": 0, "rows": []}
        answer = found.ask("spans", run=found.key("one"))
        assert ([one["id"] for one in answer["traces"]], answer["total"]) == (["t1", "t2"], 3)
        assert (answer["trace"]["id"], answer["trace"]["seconds"], answer["more"]) == ("t2", 7.0, 1)
        first, second = answer["rows"]
        assert first[:8] == ["s2", 0, "", 0.0, 1.0, "ok", "", "5 + 0 tokens"]
        assert (len(first[8]), first[9]) == (2000, "NaN")
        assert second[:5] == ["s5", 1, "", 3.0, 1.0]
        assert found.ask("spans", run=found.key("one"), trace="t0")["trace"]["name"] == "s0"
