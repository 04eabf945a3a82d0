"""Answers of the live page: what was logged a moment ago, any source, files of a run and no others."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from PIL import Image

import trackers
from tests.analysis.support import T0, write_run
from tests.readers.test_following import append, metrics
from tests.ui.support import Site, site, until
from trackers.analysis import run_table
from trackers.analysis.curves import open_runs
from trackers.analysis.run_list import listing
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter
from trackers.plotting import presets
from trackers.records import (
    Alert,
    ArtifactFile,
    ArtifactRecord,
    Console,
    Define,
    Environment,
    Media,
    MediaFile,
    Start,
    Text,
    encode,
)
from trackers.training.run import Run
from trackers.ui import answers, catalogue, media
from trackers.ui.answers import QUESTIONS


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories and files are looked at more often than for people."""
    monkeypatch.setattr(catalogue, "TICK_S", 0.1)
    monkeypatch.setattr(catalogue, "SCAN_S", 0.3)


def curve(found: Site, key: str, name: str = "loss", **given: Any) -> dict[str, Any]:
    """The line of one run in a chart."""
    (line,) = found.ask("curves", runs=key, name=name, **given)["lines"]
    return dict(line)


@pytest.mark.heavy
def test_logged_value_is_there_at_the_next_question(run: Run) -> None:
    """Without a relay, a tracker or a copy: the journal is read on at each question, and the pulse tells of it."""
    run.log({"loss": 1.0}, step=0)
    with site(runs=1) as found:
        (row,) = found.rows()
        assert (row["status"], row["project"]) == ("running", "p")
        assert curve(found, row["key"])["y"] == [1.0]
        before = found.ask("pulse", runs=row["key"])["runs"]
        run.log({"loss": 0.5}, step=1)
        assert found.ask("pulse", runs=row["key"])["runs"] != before
        line = curve(found, row["key"])
        assert (line["x"], line["y"]) == ([0.0, 1.0], [1.0, 0.5])
        until(lambda: found.rows()[0]["last"] == {"loss": 0.5} and found.rows()[0]["step"] == 1)


@pytest.mark.heavy
def test_new_run_appears_and_a_deleted_one_goes() -> None:
    """Without a restart."""
    path = write_run("one", [(0, 0, {"loss": 1.0})])
    with site(runs=1) as found:
        version = found.ask("runs")["version"]
        write_run("two", [(0, 0, {"loss": 1.0})], root="elsewhere")
        Path("elsewhere/digits/two").rename("runs/digits/two")
        until(lambda: found.ask("runs")["all"] == 2)
        assert found.ask("pulse", runs="")["version"] > version
        path.rename("gone")
        until(lambda: found.ask("runs")["all"] == 1)
        assert [row["id"] for row in found.rows()] == ["two"]


@pytest.mark.heavy
def test_directory_without_runs_is_served_until_there_are_some() -> None:
    """Whoever starts the page before training sees the first run come."""
    with site() as found:
        assert found.ask("runs")["all"] == 0
        write_run("one", [(0, 0, {"loss": 1.0})])
        until(lambda: found.ask("runs")["all"] == 1)


def test_other_sources_are_read() -> None:
    """Event files, CSV, JSON logs: whatever `trackers compare` reads, with its settings and curves."""
    Path("a.csv").write_text("step,loss\n0,3\n1,2\n2,nan\n")
    path = write_run("own", [(0, 0, {"loss": 1.0})], root="elsewhere")
    with site("csv:a.csv", str(path), runs=2) as found:
        until(lambda: any(row["last"] for row in found.rows() if "csv" in row["source"]))
        rows = {row["source"]: row for row in found.rows()}
        (csv,) = [row for source, row in rows.items() if "a.csv" in source]
        line = curve(found, csv["key"])
        assert line["x"][:2] == [0.0, 1.0]
        assert line["nans"] == [2.0]
        assert found.ask("run", run=csv["key"])["row"]["step"] == 2


def test_curves_over_each_axis_and_in_groups() -> None:
    """Steps, seconds since the start, times; the machine's samples have no step; groups have a mean and a spread."""
    for number, value in enumerate((1.0, 3.0)):
        rows: list[Any] = [(step, 10 * step, {"loss": value}) for step in range(5)]
        write_run(f"r{number}", [*rows, (None, 5, {"system.cpu": 50.0})], config={"lr": 0.1})
    with site(runs=2) as found:
        keys = [found.key("r0"), found.key("r1")]
        assert curve(found, keys[0])["x"] == [0, 1, 2, 3, 4]
        assert curve(found, keys[0], axis="relative")["x"] == [0, 10, 20, 30, 40]
        assert curve(found, keys[0], axis="time")["x"][0] == T0
        assert curve(found, keys[0], low=2, high=3)["x"] == [1, 2, 3, 4]
        assert found.ask("curves", runs=keys[0], name="system.cpu")["lines"] == []
        assert curve(found, keys[0], "system.cpu", axis="relative")["y"] == [50.0]
        share, loss = (found.ask("curves", runs=keys[0], name=name, axis="time") for name in ("system.cpu", "loss"))
        assert [(one["floor"], one["ceiling"]) for one in (share, loss)] == [(0.0, 100.0), (None, None)]
        groups = {group["title"]: group["names"] for group in found.ask("names", runs=",".join(keys))["groups"]}
        assert groups == {
            "Training": [{"name": "loss", "axis": "step"}],
            "System": [{"name": "system.cpu", "axis": "relative"}],
        }
        (band,) = found.ask("curves", runs=",".join(keys), name="loss", by="project")["lines"]
        assert (band["label"], band["y"]) == ("digits (n = 2)", [2.0] * 5)
        assert band["high"] == pytest.approx([2 + math.sqrt(2)] * 5)


def test_mean_on_a_logarithmic_axis_has_the_zeros() -> None:
    """A run at zero isn't left out of its group's mean, here as in ``plot``; a mean of zero has no place there."""
    for number in range(2):
        write_run(f"r{number}", [(step, step, {"acc": 0.8 if step == 0 else 0.8 * number}) for step in range(3)])
    write_run("r2", [(step, step, {"zero": 0.0}) for step in range(3)])
    runs = open_runs(["r0", "r1", "r2"])
    drawn = presets.metrics(runs, presets.PlotOptions(by="group", smooth=0, log_y=True), ["acc", "zero"]).panels
    with site(runs=3) as found:
        keys = ",".join(found.key(f"r{number}") for number in range(3))
        for name, expected, panel in zip(("acc", "zero"), ([0.8, 0.4, 0.4], [math.nan] * 3), drawn, strict=True):
            (band,) = found.ask("curves", runs=keys, name=name, by="project", log_y="1")["lines"]
            said = [math.nan if value in (None, "NaN") else value for value in band["y"]]
            assert said == pytest.approx(expected, nan_ok=True)
            assert list(panel.lines[0].y) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    "given",
    [{"axis": "x"}, {"weight": "1"}, {"weight": "nan"}, {"bins": "1"}, {"bins": "1e9"}, {"low": "x"}],
)
def test_wrong_question_is_told(given: dict[str, str]) -> None:
    """With status 400 and a reason."""
    write_run("one", [(0, 0, {"loss": 1.0})])
    with site(runs=1) as found:
        status, _, content = found.get(f"api/curves?{urlencode({'runs': found.key('one'), 'name': 'loss', **given})}")
        assert status == 400
        assert json.loads(content)["error"]
        assert found.get("api/runs?query=%5B%5D")[0] == 400
        assert found.get("api/runs?query=" + "%5B" * 50_000)[0] in (400, 414)
        assert found.get("api/run?run=nothing")[0] == 404


def test_values_that_json_lacks_survive() -> None:
    """NaN, infinities and integers that no double holds are in the rows and on the run's page."""
    write_run("one", [(0, 0, {"nan": math.nan, "inf": math.inf})], summary={"low": -math.inf}, config={"big": 2**60})
    with site(runs=1) as found:
        (row,) = found.rows()
        assert row["last"] == {"nan": "NaN", "inf": "Infinity"}
        assert row["result"] == {"low": "-Infinity"}
        page = found.ask("run", run=row["key"])
        assert page["results"] == [["low", "-Infinity"]]
        assert page["config"] == [["big", str(2**60)]]


def test_run_page_has_all_of_a_run() -> None:
    """Settings, results, attempts, trackers, alerts, media and messages."""
    more = [
        Text(step=1, time=T0, values={"note": "hello"}),
        Alert(time=T0, title="spike", text="at 1"),
        Media(step=1, time=T0, name="table", type="table", items=[
            MediaFile(format="json", data={"columns": ["a"], "rows": [[1], [math.inf], [{"x": 1}], [None]]})]),
        Media(step=1, time=T0, name="histogram", type="histogram", items=[
            MediaFile(format="json", data={"counts": [1, 2], "edges": [0, 1, 2]})]),
    ]  # fmt: skip
    path = write_run("one", [(0, 0, {"loss": 1.0})], config={"model": {"depth": 4}}, summary={"acc": 0.5}, more=more)
    (path / "relay.log").write_text("first\nlast line\n")
    (path / "messages.jsonl").write_text('{"time": 1.0, "text": "no answer", "source": "mlflow"}\nbroken\n')
    with site(runs=1) as found:
        key = found.key("one")
        page = found.ask("run", run=key)
        assert page["config"] == [["model.depth", 4]]
        assert page["results"] == [["acc", 0.5]]
        assert page["alerts"][0][1] == "INFO: spike: at 1"
        assert page["delivery"]["json"]["state"] == "not begun"
        assert [(one["name"], one["type"]) for one in page["media"]] == [
            ("note", "text"), ("table", "table"), ("histogram", "histogram")]  # fmt: skip
        log = found.ask("log", run=key)
        assert log["log"] == "first\nlast line\n"
        assert log["messages"] == [[1.0, "warning", "mlflow", "no answer"]]
        assert found.ask("items", run=key, name="note", type="text")["items"] == [{"text": "hello"}]
        table = found.ask("rows", run=key, name="table")
        assert ([one["name"] for one in table["columns"]], table["total"]) == (["a"], 4)
        assert [row[0] for row in table["rows"]][0::3] == ["1", None]
        (item,) = found.ask("items", run=key, name="table", type="table")["items"]
        assert "columns" not in item
        (histogram,) = found.ask("items", run=key, name="histogram", type="histogram")["items"]
        assert (histogram["counts"], histogram["edges"]) == ([1, 2], [0, 1, 2])
        assert found.ask("media", run=key, name="table", type="table")["steps"] == [1]


@pytest.mark.parametrize("gathered", [True, False])
def test_run_page_has_each_fact_once(gathered: bool) -> None:
    """Host, interpreter and commit are shown once, whether or not a relay recorded the environment."""
    known = {"host": "node1", "executable": "/usr/bin/python3", "git": {"commit": "abc", "branch": "main"}}
    more = [Environment(time=T0, values={**known, "python": "3.11.7"})] if gathered else []
    write_run("one", more=more, host="node1", python="/usr/bin/python3", git=known["git"])
    with site(runs=1) as found:
        page = found.ask("run", run=found.key("one"))
    facts = [*page["about"], *page["environment"]]
    names = [name for name, _ in facts]
    assert len(names) == len(set(names))
    for fact in ("node1", "/usr/bin/python3", "abc", "main"):
        assert [value for _, value in facts].count(fact) == 1, fact
    assert ("python" in names) == gathered


def picture(name: str, file: str, form: str, kind: str = "image") -> Media:
    """A record of one item with a file."""
    return Media(step=0, time=T0, name=name, type=kind, items=[MediaFile(format=form, file=file)])


def test_files_of_media_are_shown_or_saved_never_run(run: Run) -> None:
    """Arrays become pictures; what could hold a script is offered as a file; every answer has the policy."""
    run.log(
        {"array": trackers.Image(np.full((4, 6, 3), 255, np.uint8)), "page": trackers.Html("<script>x</script>")},
        step=0,
    )
    with site(runs=1) as found:
        (row,) = found.rows()
        shown = found.get(f"media?run={row['key']}&name=array&type=image")
        assert (shown[0], shown[1]["content-type"]) == (200, "image/png")
        assert Image.open(io.BytesIO(shown[2])).size == (6, 4)
        status, headers, content = found.get(f"media?run={row['key']}&name=page&type=html")
        assert (status, headers["content-type"], content) == (200, "application/octet-stream", b"<script>x</script>")
        assert headers["content-disposition"].startswith("attachment;")
        assert (
            "sandbox" in headers["content-security-policy"]
            or "script-src 'self';" in headers["content-security-policy"]
        )


@pytest.mark.parametrize(
    "file",
    [
        "../../../secret.png",
        "/etc/passwd",
        "media/link.png",
        "linked/secret.png",
        "media/pipe.png",
        "",
        "media",
        "a\\b",
    ],
)
def test_file_outside_of_the_run_is_not_read(file: str) -> None:
    """Whatever a journal names, and whatever lies in a run's directory: links and pipes lead nowhere."""
    Path("secret.png").write_bytes(b"secret")
    path = write_run(
        "one", [(0, 0, {"loss": 1.0})], more=[picture("p", file, "png"), picture("t", file, "json", "table")]
    )
    (path / "media/link.png").symlink_to(Path("secret.png").resolve())
    (path / "linked").symlink_to(Path.cwd())
    os.mkfifo(path / "media/pipe.png")
    with site(runs=1) as found:
        key = found.key("one")
        status, _, content = found.get(f"media?run={key}&name=p&type=image")
        assert (status, content[:8]) == (404, b'{"error"')
        assert found.get(f"api/rows?run={key}&name=t")[0] == 404


def test_damaged_run_is_named_and_others_are_shown() -> None:
    """A run that can't be read is one line under the table."""
    write_run("good", [(0, 0, {"loss": 1.0})])
    bad = write_run("bad", [(0, 0, {"loss": 1.0})])
    (bad / "run.json").write_text("{")
    (bad / "streams/rank-0.1.jsonl").write_text("")
    with site() as found:
        until(lambda: found.ask("runs")["all"] == 1 and found.ask("runs")["lost"])
        assert "bad" in found.ask("runs")["lost"][0]


@pytest.mark.parametrize(
    ("by", "there"), [("seed", "seed"), ("group", "group"), ("tag", "tags"), ("config.lr", "config.lr")]
)
def test_groups_have_label_and_colour_of_plot(by: str, there: str) -> None:
    """The page's groups of runs are those of `trackers plot --by`, in each chart, also where some lack its metric."""
    for number in range(12):
        rows: list[Any] = [(step, step, {"loss": 1.0, **({"acc": 1.0} if number > 5 else {})}) for step in range(5)]
        config = {"seed": number, **({"lr": 10.0 ** -(number % 4)} if number < 11 else {})}
        write_run(f"r{number}", rows, config=config, group=f"g{number % 3}" if number > 1 else "",
                  tags=[f"t{number % 3}", f"u{number % 2}"] if number > 3 else [])  # fmt: skip
    runs = open_runs([f"r{number}" for number in range(12)])
    picture = presets.metrics(runs, presets.PlotOptions(by=by), ["loss", "acc"])
    with site(runs=12) as found:
        keys = ",".join(found.key(f"r{number}") for number in range(12))
        drawn = {name: found.ask("curves", runs=keys, name=name, by=there)["lines"] for name in ("loss", "acc")}
    assert {(line["label"], line["style"]) for line in drawn["loss"]} == set(picture.legend)
    assert len({style for _, style in picture.legend}) == len(picture.legend) > 3
    for panel in picture.panels:
        theirs = {(line["label"].rpartition(" (n")[0], line["style"]) for line in drawn[panel.title]}
        assert theirs == {(line.label, line.style) for line in panel.lines}


def test_compared_settings_and_scattered_values() -> None:
    """Settings that differ apart from the others; columns of all runs that fit, for plots."""
    for number in range(3):
        path = write_run(f"r{number}", [(0, 0, {"loss": 1.0})], summary={"acc": number / 2})
        info = json.loads((path / "run.json").read_text())
        (path / "run.json").write_text(json.dumps({**info, "config": {"lr": number / 10, "depth": 4}}))
    with site(runs=3) as found:
        keys = [found.key(f"r{number}") for number in range(3)]
        compared = found.ask("compare", runs=",".join(keys))
        assert compared["differ"] == [["lr", [0.0, 0.1, 0.2]]]
        assert compared["same"] == [["depth", [4, 4, 4]]]
        assert compared["results"] == [["final/acc", [0.0, 0.5, 1.0]], ["loss", [1.0, 1.0, 1.0]]]
        assert compared["best"] == {"final/acc": [2], "loss": []}
        scattered = found.ask("scatter", columns="config.lr\nresult.acc", where="lr>0")
        assert sorted(scattered["rows"]) == sorted([[keys[1], "r1", 0.1, 0.5], [keys[2], "r2", 0.2, 1.0]])
        assert {"config.lr", "result.acc", "last.loss", "tracker.json"} <= set(found.ask("columns")["columns"])


def test_losses_are_the_first_charts() -> None:
    """Then what is better the larger it is, then all else; each by name."""
    write_run("one", [(0, 0, {"grad_norm": 1.0, "accuracy": 1.0, "train_loss": 1.0, "loss": 1.0})])
    with site(runs=1) as found:
        (group,) = found.ask("names", runs=found.key("one"))["groups"]
        assert [one["name"] for one in group["names"]] == ["loss", "train_loss", "accuracy", "grad_norm"]


def artifact(*files: str) -> ArtifactRecord:
    """A record of an artifact whose files lie where these say."""
    listed = [ArtifactFile(path=file.rpartition("/")[2] or "empty", file=file, size=3) for file in files]
    return ArtifactRecord(step=1, time=T0, name="model", type="model", files=listed)


def test_files_of_artifacts_are_saved(run: Run, tmp_path: Path) -> None:
    """Each under its own name, whatever it holds; a mere reference and a file that is too large are only named."""
    (tmp_path / "page.html").write_text("<script>x</script>")
    run.log_artifact(tmp_path / "page.html", name="pages", type="dataset")
    with site(runs=1) as found:
        (row,) = found.rows()
        (one,) = until(lambda: found.ask("run", run=row["key"])["artifacts"])
        assert (one["name"], one["type"], one["size"], one["more"]) == ("pages", "dataset", 18, 0)
        assert one["files"] == [{"path": "page.html", "size": 18, "kept": True}]
        status, headers, content = found.get(f"artifact?run={row['key']}&place=0&item=0")
        assert (status, headers["content-type"], content) == (200, "application/octet-stream", b"<script>x</script>")
        assert headers["content-disposition"] == 'attachment; filename="page.html"'
        assert found.get(f"artifact?run={row['key']}&place=0&item=1")[0] == 404
        assert found.get(f"artifact?run={row['key']}&place=1&item=0")[0] == 404


def test_listed_files_of_artifacts_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many files the first are listed; those that aren't kept, or are too large, can't be saved."""
    monkeypatch.setattr(answers, "MOST_FILES", 2)
    monkeypatch.setattr(media, "FILE_BYTES", 2)
    write_run("one", [(0, 0, {"loss": 1.0})], more=[artifact("media/a", "", "media/c")])
    with site(runs=1) as found:
        (one,) = found.ask("run", run=found.key("one"))["artifacts"]
        assert (len(one["files"]), one["more"], [file["kept"] for file in one["files"]]) == (2, 1, [False, False])


@pytest.mark.parametrize(
    "file", ["../../../secret.png", "/etc/passwd", "media/link.png", "linked/secret.png", "media", ""]
)
def test_file_of_an_artifact_outside_of_the_run_is_not_read(file: str) -> None:
    """Whatever a journal names: links lead nowhere."""
    Path("secret.png").write_bytes(b"secret")
    path = write_run("one", [(0, 0, {"loss": 1.0})], more=[artifact(file)])
    (path / "media").mkdir(exist_ok=True)
    (path / "media/link.png").symlink_to(Path("secret.png").resolve())
    (path / "linked").symlink_to(Path.cwd())
    with site(runs=1) as found:
        status, _, content = found.get(f"artifact?run={found.key('one')}&place=0&item=0")
        assert (status, content[:8]) == (404, b'{"error"')


def test_all_values_are_saved_as_csv(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the runs that are asked for, not only the points of a picture; more than a limit are refused."""
    for number in range(2):
        write_run(
            f"r{number}", [(step, step, {"loss": math.nan if step else 0.5}) for step in range(2)], name=f"a,{number}"
        )
    write_run("other", [(None, 5, {"system.cpu": 50.0})])
    with site(runs=3) as found:
        keys = [found.key(f"r{number}") for number in range(2)]
        asked = urlencode({"runs": ",".join(keys), "name": "loss"})
        status, headers, content = found.get(f"points?{asked}")
        assert (status, headers["content-disposition"]) == (200, 'attachment; filename="loss.csv"')
        assert list(csv.reader(content.decode().splitlines())) == [
            ["run", "step", "time", "loss"],
            *([name, str(step), str(T0 + step), value] for name in ("a,0", "a,1")
              for step, value in enumerate(("0.5", "nan"))),
        ]  # fmt: skip
        sample = found.get(f"points?{urlencode({'runs': found.key('other'), 'name': 'system.cpu'})}")[2].decode()
        assert sample.splitlines()[1] == f"other,,{T0 + 5},50.0"
        odd = found.get(f"points?{urlencode({'runs': keys[0], 'name': 'a/b' + chr(10) + chr(34) + 'é'})}")
        assert odd[1]["content-disposition"] == 'attachment; filename="a_b___.csv"'
        asked_both = urlencode({"runs": ",".join(keys), "names": "loss\nnone"})
        both = found.get(f"points?{asked_both}")[2].decode()
        assert both.splitlines()[:2] == ["run,step,time,metric,value", f'"a,0",0,{T0},loss,0.5']
        monkeypatch.setattr(answers, "MOST_SAVED", 3)
        monkeypatch.setattr(answers, "MOST_SAVED", 3)
        status, _, content = found.get(f"points?{asked}")
        assert status == 400
        assert "more than 3 values" in json.loads(content)["error"]


def test_rewind_is_seen() -> None:
    """A run that goes back shows what counts."""
    path = write_run("one", [(step, step, {"loss": 1.0}) for step in range(6)], status="running")
    with site(runs=1) as found:
        key = found.key("one")
        assert len(curve(found, key)["x"]) == 6
        append(path, Start(time=T0 + 20, rank=0, attempt=2, from_step=2), metrics(3, loss=9.0), stream="rank-0.2")
        assert curve(found, key)["y"] == [1.0, 1.0, 1.0, 9.0]


@pytest.mark.slow
def test_pictures_inside_event_files_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a run that is looked at are put into a temporary directory, which goes with the server."""
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(tmp_path / "events")) as writer:
        writer.add_scalar("loss", 0.5, 3)
        writer.add_image("picture", np.full((3, 4, 6), 128, np.uint8), 3)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with site(f"tb:{tmp_path / 'events'}", runs=1) as found:
        key = found.rows()[0]["key"]
        (one,) = [one for one in found.ask("run", run=key)["media"] if one["type"] == "image"]
        status, headers, content = found.get(f"media?run={key}&name={one['name']}&type=image")
        assert (status, headers["content-type"]) == (200, "image/png")
        assert Image.open(io.BytesIO(content)).size == (6, 4)
        (made,) = Path().glob("trackers-ui-*")
    assert not made.exists()


def test_name_that_is_not_utf8_is_escaped() -> None:
    """A file's name of other bytes hides no other run, and its run can be looked at."""
    os.makedirs(b"runs/digits-\xff")
    write_run("one", [(0, 0, {"loss": 1.0})])
    Path("runs/digits/one").rename(os.fsdecode(b"runs/digits-\xff/one"))
    write_run("two", [(0, 0, {"loss": 1.0})])
    with site(runs=2) as found:
        rows = {row["id"]: row for row in found.rows()}
        assert "\\xff" in rows["one"]["source"] or "\\udcff" in rows["one"]["source"]
        assert found.ask("run", run=rows["one"]["key"])["row"]["id"] == "one"
        assert curve(found, rows["one"]["key"])["y"] == [1.0]


def test_type_of_media_that_is_no_word_is_harmless() -> None:
    """What a journal says of a file becomes no header."""
    odd = 'x"\r\nSet-Cookie: a=b\r\n\r\né'
    path = write_run("one", [(0, 0, {"loss": 1.0})], more=[picture("p", "media/p", odd, odd)])
    (path / "media/p").write_bytes(b"content")
    with site(runs=1) as found:
        status, headers, content = found.get(f"media?{urlencode({'run': found.key('one'), 'name': 'p', 'type': odd})}")
        assert (status, content) == (200, b"content")
        assert "set-cookie" not in headers
        assert headers["content-disposition"] == 'attachment; filename="media-0.bin"'


def test_settings_changed_later_are_compared() -> None:
    """A setting that training changed is what it is now."""
    for number in range(2):
        write_run(f"r{number}", [(0, 0, {"loss": 1.0})], config={"lr": number})
    with site(runs=2) as found:
        keys = f"{found.key('r0')},{found.key('r1')}"
        assert found.ask("compare", runs=keys)["differ"] == [["lr", [0, 1]]]


@pytest.mark.heavy
def test_files_that_are_left_out_are_told_on_the_page(capfd: pytest.CaptureFixture[str]) -> None:
    """Once, and not on the terminal at each look; a file that changes is read anew."""
    good = Path("good.json")
    good.write_text('{"log_history": [{"step": 0, "loss": 3.0}]}')
    Path("bad.json").write_text("{")
    with site("hf:*.json") as found:
        until(lambda: any(row["last"] for row in found.rows()))
        (key,) = [row["key"] for row in found.rows() if row["last"]]
        assert curve(found, key)["y"] == [3.0]
        good.write_text('{"log_history": [{"step": 0, "loss": 3.0}, {"step": 1, "loss": 2.0}]}')
        until(lambda: curve(found, key)["y"] == [3.0, 2.0])
        (lost,) = until(lambda: found.ask("runs")["lost"])
        assert "bad.json" in lost
    assert capfd.readouterr().err.count("bad.json") <= 1


DEEP: Any = 1
for _ in range(150):
    DEEP = [DEEP]
ODD: tuple[Any, ...] = (
    None, 5, "text", [], {}, {"columns": 5, "rows": [[1]]}, {"columns": ["a"], "rows": 5},
    {"columns": ["a"], "rows": [5]},
    {"columns": [None, {"x": 1}], "rows": [[DEEP, {"_type": 5}, {"_type": "image-file"}]]},
    {"counts": [1], "edges": [0]}, {"counts": ["x"], "edges": [0, 1]}, {"counts": [1e400], "edges": [0, math.nan]},
    {"counts": 5, "edges": None}, {"counts": [10**400], "edges": [0, 1]},
)  # fmt: skip


@pytest.mark.heavy
def test_odd_records_are_answered() -> None:
    """Whatever a journal holds, each question has an answer or a reason, and the connection isn't broken off."""
    more: list[Any] = [Text(step=-(2**60), time=-1e9, values={"": "", "x" * 5000: "y" * 100_000})]
    for number, data in enumerate(ODD):
        for kind in ("table", "histogram", "image", "", "strange"):
            items = [
                MediaFile(format="", data=data, width=-1),
                MediaFile(format="npy", file=f"media/{number}", data=data),
            ]
            more.append(Media(step=number, time=T0, name=f"{kind}{number}", type=kind, items=items))
    more += [Alert(time=T0, title="t" * 10_000, level=""), Start(time=0.0, attempt=10**9, rank=0)]
    config: Any = {"deep": DEEP, "": {"": 1}, "big": 10**300, "none": None, "list": [math.nan]}
    rows: list[Any] = [(2**62, 0, {"": 1e308, "x\n\0": -1e308, "loss": 10**300, "yes": True})]
    path = write_run(
        "one", rows, config=config, summary={"deep": DEEP, "text": "x" * 10_000}, more=more, notes="n" * 9999
    )
    (path / "media/0").write_bytes(
        b"\x93NUMPY\x01\x00v\x00{'descr': '|u1', 'fortran_order': False, 'shape': (9999999, 99999999), }\n"
    )
    (path / "relay.log").write_bytes(b"\xff\xfe\0" * 1000)
    with site(runs=1) as found:
        key = found.key("one")
        page = found.ask("run", run=key)
        assert len(page["media"]) == 2 + 5 * len(ODD)
        asked: list[tuple[str, dict[str, Any]]] = [(f"api/{name}", {"run": key, "runs": key}) for name in QUESTIONS]
        for one in page["media"]:
            about = {"run": key, "name": one["name"], "type": one["type"]}
            asked += [("api/media", about), ("api/items", about), ("media", about), ("media", {**about, "item": 1})]
            asked += [("table", about), ("cell", {**about, "row": 0, "column": 0}), ("api/rows", about)]
            asked.append(("api/differences", {**about, "other": key}))
        for name in found.ask("columns")["columns"]:
            asked += [
                ("api/scatter", {"columns": name}),
                ("api/runs", {"query": json.dumps({"sort": name, "by": name})}),
            ]
        for name in ("", "x\n\0", "loss", "yes"):
            for axis in ("step", "time", "relative"):
                for log in ("", "1"):
                    given = {"runs": key, "name": name, "axis": axis, "log_x": log, "log_y": log, "weight": "0.9"}
                    asked += [("api/curves", given), ("api/curves", {**given, "by": "config.big", "low": "-1e300"})]
        for question, given in asked:
            status, _, content = found.get(f"{question}?{urlencode(given)}")
            assert status in (200, 404), (question, given, content[:200])
            if question.startswith("api/"):
                json.loads(content)
            if question.removeprefix("api/") not in ("media", "items", "table", "cell", "rows", "differences"):
                assert status == 200, (question, given, content[:200])


def test_what_is_sent_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 500 rows of a table, the end of a log, no file above the limit, 200 runs at once."""
    monkeypatch.setattr("trackers.ui.media.FILE_BYTES", 1000)
    data = {"columns": ["a"], "rows": [[number] for number in range(600)]}
    table = Media(step=0, time=T0, name="t", type="table", items=[MediaFile(format="json", data=data)])
    path = write_run("one", [(0, 0, {"loss": 1.0})], more=[table, picture("p", "media/p.png", "png")])
    (path / "media/p.png").write_bytes(b"x" * 1001)
    (path / "relay.log").write_text("".join(f"line {number}\n" for number in range(100_000)))
    with site(runs=1) as found:
        key = found.key("one")
        found_rows = found.ask("rows", run=key, name="t", most="1000")
        assert (len(found_rows["rows"]), found_rows["total"]) == (500, 600)
        assert found.get(f"media?run={key}&name=p&type=image")[0] == 404
        log = found.ask("log", run=key)["log"]
        assert 200_000 < len(log) <= 256 * 1024
        assert log.startswith("line ")
        assert log.endswith("line 99999\n")
        many = ",".join([*(f"x{number}" for number in range(200)), key])
        assert found.ask("curves", runs=many, name="loss")["lines"] == []


def test_console_is_answered_by_stream_and_by_a_word() -> None:
    """The last lines, and all that a word is in; of a run that printed nothing, none."""
    run = RunDirectory(write_run("printing", [(0, 0, {"loss": 1.0})]))
    write_run("silent", [(0, 0, {"loss": 1.0})])
    writer = StreamWriter(run.stream(StreamName("console", 0, 1)))
    for number in range(1200):
        writer.write(encode(Console(time=T0 + number, lines=[f"line {number}"])))
    writer.write(encode(Console(time=T0 + 2000, lines=["Careful"], stream="stderr", rank=3)))
    writer.release()
    with site(runs=2) as found:
        keys = {row["id"]: row["key"] for row in found.ask("runs")["rows"]}
        shown = found.ask("console", run=keys["printing"])
        assert (len(shown["lines"]), shown["more"], shown["ranks"]) == (answers.MOST_LINES, 201, 2)
        assert shown["lines"][-1] == [T0 + 2000, "stderr", 3, "Careful"]
        assert found.ask("console", run=keys["printing"], find="careful", stream="stdout")["lines"] == []
        assert len(found.ask("console", run=keys["printing"], find="LINE 11")["lines"]) == 111
        assert found.ask("console", run=keys["silent"])["lines"] == []


def test_metric_is_drawn_over_another_one() -> None:
    """Over the step metric that the script defined, by itself; over any metric that is asked for, by the last value."""
    rows: list[Any] = [(step, step, {"epoch": step / 2, "loss": 1.0 - step / 10}) for step in range(5)]
    rows += [(step, step, {"val/acc": step / 10}) for step in (1, 3)]
    write_run("one", rows, more=[Define(time=T0, name="val/*", step_metric="epoch")])
    with site(runs=1) as found:
        key = found.key("one")
        groups = found.ask("names", runs=key)["groups"]
        axes = {entry["name"]: entry["axis"] for group in groups for entry in group["names"]}
        assert axes == {"epoch": "step", "loss": "step", "val/acc": "metric:epoch"}
        over = curve(found, key, "val/acc", axis="metric:epoch")
        assert (over["x"], over["y"]) == ([0.5, 1.5], [0.1, 0.3])
        assert curve(found, key, "epoch", axis="metric:loss")["x"] == pytest.approx([0.6, 0.7, 0.8, 0.9, 1.0])
        assert found.ask("curves", runs=key, name="loss", axis="metric:none")["lines"] == []


def test_differences_from_a_baseline_are_in_percent() -> None:
    """At the same x, interpolated between the baseline's points; nothing beyond its ends, and at its zeros."""
    write_run("base", [(step, step, {"loss": value}) for step, value in ((0, 2.0), (2, 4.0), (4, 0.0))])
    write_run("other", [(step, step, {"loss": 3.0}) for step in range(6)])
    with site(runs=2) as found:
        base, other = found.key("base"), found.key("other")
        lines = found.ask("curves", runs=f"{base},{other}", name="loss", base=base)["lines"]
        assert [line["y"] for line in lines] == [[0.0, 0.0, None], [50.0, 0.0, -25.0, 50.0, None, None]]


def test_usual_columns_are_what_most_runs_have() -> None:
    """Settings that differ and results of most runs, not those of the newest alone; as `trackers ls` has them."""
    for number, results in enumerate([{"val_loss": 0.5}, {"val_loss": 0.6}, {"x": 0.1, "y": 0.2}]):
        config = {"lr": 0.1 / (1 + number), "batch": 64, **({"only": 1} if number == 2 else {})}
        write_run(f"r{number}", [(0, 0, {"loss": 1.0})], config=config, created=T0 + number, summary=results)
    with site(runs=3) as found:
        usual = found.ask("runs")["usual"]
        assert usual[:3] == ["status", "step", "created"]
        assert usual.index("config.lr") < usual.index("result.val_loss") < usual.index("last.loss")
        assert not {"config.batch", "config.only"} & set(usual)
        listed = run_table.usual(listing(Path("runs")).lines)
        shown = [name for name in usual if name.startswith(("result.", "last."))]
        assert [name.replace("result.", "final/").replace("last.", "") for name in shown] == listed


def test_runs_of_one_project_are_asked_for() -> None:
    """In the table and in a scatter plot; the projects there are come with what is new."""
    for number in range(4):
        write_run(f"r{number}", [(0, 0, {"loss": 1.0})], project=f"p{number % 2}")
    with site(runs=4) as found:
        assert {row["id"] for row in found.rows(project="p1")} == {"r1", "r3"}
        assert len(found.ask("scatter", columns="name", project="p0")["rows"]) == 2
        assert found.ask("pulse")["projects"] == ["p0", "p1"]
