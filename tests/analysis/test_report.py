"""``trackers report``: figures are those of the journal, names are shown as they are, pages open in a browser."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from benchmarks import plotting
from tests import browser as chromium
from tests.analysis.support import said_in_one_line, write_run
from tests.plotting.test_html_page import data_of, needs_browser
from tests.plotting.test_presets import NASTY, POOR, losses
from trackers.analysis import report
from trackers.analysis.curves import open_runs
from trackers.analysis.tables import format_value
from trackers.cli import analysis as command
from trackers.cli.app import app
from trackers.metrics.styles import COLOURS, DARK_COLOURS, identity_of, styles_of
from trackers.plotting import html_page
from trackers.readers.journal import JournalReader
from trackers.readers.reader import SourceRun


def cells(text: str, heading: str) -> dict[str, list[str]]:
    """A section's table: each row's cells by its first, without the marks of the best."""
    section = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [
        [cell.strip(" *") for cell in line.strip("|").split(" | ")] for line in section.splitlines() if line[:1] == "|"
    ]
    return {row[0]: row[1:] for row in rows}


def test_figures_are_the_journals() -> None:
    """Step times, throughput and metrics are pandas' own of the run's metrics."""
    rows = [(step, step * 0.5, {"train_loss": 3.0 - step / 100, "perf/iter_time_sec": 0.1 + (step % 7) / 100})
            for step in range(200)]  # fmt: skip
    write_run("a", rows, config={"global_batch_size": 16, "seq_length": 64})
    write_run("b", losses(50), config={"global_batch_size": 16, "seq_length": 64, "lr": 0.5})
    runs = open_runs(["a", "b"])
    text = report.markdown(runs, when="now")
    frame = runs[0].data.metrics().to_pandas()
    times = frame["perf/iter_time_sec"][1:]
    step_times = cells(text, "Step time")
    assert step_times["run"][:5] == ["steps", "avg ms", "min ms", "max ms", "std ms"]
    figures = (times.mean(), times.min(), times.max(), times.std())
    assert step_times["a"][1:5] == [format_value(float(value) / 1e-3) for value in figures]
    speed = cells(text, "Throughput")["a"]
    assert speed[0] == speed[1] == format_value(16 * 64 / float(times.mean()))
    results = cells(text, "Results")
    assert results["run"][:2] == ["steps", "lr"]
    assert [results[name][1] for name in ("a", "b")] == ["–", "0.5"]
    assert results["a"][results["run"].index("train_loss best")] == format_value(float(frame["train_loss"].min()))
    alone = cells(report.markdown(runs[:1], when="now"), "Results")
    assert alone["train_loss last"][0] == format_value(float(frame["train_loss"].iloc[-1]))


def test_report_has_no_login_of_a_server() -> None:
    """A report is passed on; the source's address may hold a password."""
    write_run("a", losses(5))
    runs = open_runs(["a"])
    runs[0].data.run = msgspec.structs.replace(runs[0].data.run, source="mlflow:http://joe:Winter-9x@h:5000#e/1")
    text = report.markdown(runs, when="now")
    assert "Winter" not in text
    assert "joe:" in text


def test_winner_has_its_reason() -> None:
    """The run that makes the most tokens per second on each GPU wins, and by how much is said."""
    for name, seconds in (("slow", 0.2), ("fast", 0.1)):
        write_run(name, [(step, step, {"loss": 1.0, "perf/iter_time_sec": seconds}) for step in range(9)],
                  config={"global_batch_size": 4, "seq_length": 8})  # fmt: skip
    text = report.markdown(open_runs(["slow", "fast"]), when="now")
    assert "## Speed\n\nFastest: **fast**. " in text
    assert "100.0 % more than slow" in text


def test_report_leads_with_results_and_names_no_winner_of_other_work() -> None:
    """What was trained for comes first, then settings, speed and the rest; a model of another size wins nothing."""
    for name, seconds, layers in (("small", 0.1, 2), ("large", 0.2, 24)):
        write_run(name, [(step, step, {"loss": 1.0, "perf/iter_time_sec": seconds}) for step in range(9)],
                  config={"global_batch_size": 4, "seq_length": 8, "model": {"n_layer": layers}})  # fmt: skip
    text = report.markdown(open_runs(["small", "large"]), when="now")
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        "## Results", "## Curves", "## Speed", "## Throughput", "## Step time",
        "## What makes it unfair", "## Runs",
    ]  # fmt: skip
    assert "No winner. Not the same work" in text
    assert report.escape_markdown("n_layer differs (2, 24)") in text


def test_winner_by_samples_where_nobody_counts_tokens(tmp_path: Path) -> None:
    """Pictures a second win, too; the page shows loss and learning rate once, and its title once."""
    for name, seconds in (("slow", 0.2), ("fast", 0.1)):
        values = {"train_loss": 1.0, "learning_rate": 0.1, "perf/iter_time_sec": seconds}
        write_run(name, [(step, step, values) for step in range(9)], config={"global_batch_size": 4, "num_gpus": 2})
    runs = open_runs(["slow", "fast"])
    text = report.markdown(runs, when="now")
    assert "Fastest: **fast**. 20 samples/s per GPU, 100.0 % more than slow" in text
    html_page.save_report(runs, text, tmp_path / "page.html", title="Report of 2 runs")
    page = (tmp_path / "page.html").read_text()
    titles = [panel["title"] for panel in data_of(page)["picture"]["panels"]]
    assert titles == ["train_loss", "learning_rate", "Milliseconds a step (mean; min to max)", "Samples/s, all GPUs"]
    assert page.count("<h1>") == 1
    places = [page.index(part) for part in ("<h2>Results", "<h2>Curves", '<div id="charts">', "<h2>Speed", "<h2>Runs")]
    assert places == sorted(places)
    assert page.count("<h2>Curves") == page.count("<p>2 × GPU, global batch 4</p>") == 1
    assert "<pre>" not in page


def test_results_name_the_best_run_of_each_metric() -> None:
    """Results come first, then validation, then training; the best run of each that has a best is named, and marked.

    The table begins with the settings that differ and the best run; what all have alike is said once, below it.
    """
    for name, loss in (("two", 2.0), ("one", 1.0)):
        write_run(name, [(1, 1, {"train_loss": loss, "val_acc": loss / 10, "lr": 0.1})], summary={"best_loss": loss},
                  config={"depth": loss, "width": 8})  # fmt: skip
    text = report.markdown(open_runs(["one", "two"]), when="now")
    results = text.split("## Results\n\n")[1].splitlines()
    assert results[:3] == [
        "- Smallest final/best\\_loss: **one**, 1".replace("\\_", "_"),
        "- Largest val_acc: **two**, 0.2",
        "- Smallest train_loss: **one**, 1",
    ]
    lines = [line for line in results if line.startswith("|")]
    assert lines[0] == "| run | depth | final/best_loss | val_acc best | train_loss best |"
    assert lines[2:4] == ["| one | 1 | **1** | 0.1 | **1** |", "| two | 2 | 2 | **0.2** | 2 |"]
    assert "The same in all: status finished, steps 1, lr last 0.1." in results


def test_run_that_failed_leaves_the_best_first() -> None:
    """Results that a run of a sweep lacks, or has as NaN, have their column still and order the table; settings that
    this run alone lacks come after those that differ between runs that have them."""
    for name, loss in (("two", 2.0), ("one", 1.0), ("nan", math.nan)):
        write_run(name, [(1, 1, {"train/loss": 0.5})], summary={"val_loss": loss}, config={"width": 8, "lr": loss})
    write_run("failed", [(1, 1, {"train/loss": 0.1})], config={"lr": 3.0}, status="failed")
    text = report.markdown(open_runs(["failed", "nan", "two", "one"]), when="now")
    results = [
        line.strip("| ").split(" | ") for line in text.split("## Results")[1].splitlines() if line.startswith("|")
    ]
    assert "- Smallest final/val_loss: **one**, 1" in text
    assert results[0] == ["run", "status", "lr", "width", "final/val_loss", "train/loss best"]
    assert [row[0] for row in results[2:4]] == ["one", "two"]


def test_settings_beyond_the_results_have_a_table_of_their_own() -> None:
    """Eight settings that differ stand beside the results; the others follow, none twice."""
    for number in range(3):
        write_run(f"r{number}", losses(3, number), config={f"s{place:02}": number for place in range(11)})
    text = report.markdown(open_runs(["r0", "r1", "r2"]), when="now")
    assert [name for name in cells(text, "Results")["run"] if name[0] == "s"][-8:] == [f"s0{k}" for k in range(8)]
    assert [name for name in cells(text, "More settings that differ") if name[:2] in ("s0", "s1")] == [
        "s08",
        "s09",
        "s10",
    ]


def test_columns_of_texts_begin_at_the_left() -> None:
    """Words below each other's first letter, numbers below each other's last digit; on the page the heads, too."""
    for name, words in (("a", "adam"), ("b", "sgd")):
        write_run(name, losses(9), config={"optimizer": words, "lr": len(words)})
    text = report.markdown(open_runs(["a", "b"]), when="now")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    head, rule = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[:2])
    sides = dict(zip(head, rule, strict=True))
    assert (sides["run"], sides["optimizer"], sides["lr"]) == ("---", "---", "---:")
    assert re.search(r"th, td {[^}]*text-align: left", Path(html_page.__file__).with_name("page.css").read_text())


def test_report_has_the_colours_of_page_and_plot(tmp_path: Path) -> None:
    """Each run's curve and its bar have the style that the run's id asks for, in any choice of runs."""
    ids = [f"r{number}" for number in range(4)]
    for run in ids:
        write_run(run, losses(9))
    for chosen in (ids, ids[2:]):
        styles = dict(zip(chosen, styles_of([identity_of(run) for run in chosen]), strict=True))
        runs = open_runs(chosen)
        path = tmp_path / f"{len(chosen)}.html"
        html_page.save_report(runs, report.markdown(runs, when="now"), path, title="Colours")
        data = data_of(path.read_text())
        assert (data["colours"], data["dark"]) == (list(COLOURS), list(DARK_COLOURS))
        assert dict(data["picture"]["legend"]) == styles
        panels = data["picture"]["panels"]
        lines = [(line["label"], line["style"]) for panel in panels for line in panel.get("lines", ())]
        assert len(lines) >= len(chosen)
        assert set(lines) == set(styles.items())


def test_summary_of_a_workflow_gets_the_markdown_beside_a_page(tmp_path: Path) -> None:
    """``--markdown -o page.html >> "$GITHUB_STEP_SUMMARY"``, as documented: standard output has the report alone."""
    write_run("a", losses(9), config={"lr": 0.1})
    done = CliRunner().invoke(app, ["report", "a", "--markdown", "-o", str(tmp_path / "report.html")])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("# Report of 1 run")
    assert "## Results" in done.stdout
    assert "Saved" not in done.stdout
    assert "report.html" in done.stderr
    page = (tmp_path / "report.html").read_text()
    assert "<h1>Report of 1 run</h1>" in page
    assert "<h2>Results" in page


def test_curves_are_drawn_as_text_on_one_scale() -> None:
    """A line of signs for each run, from the lowest to the highest value of the metric; NaN is ×."""
    write_run("fall", [(step, step, {"loss": 8.0 - step}) for step in range(8)])
    write_run("rise", [(step, step, {"loss": math.nan if step == 3 else float(step) + 1}) for step in range(8)])
    text = report.markdown(open_runs(["fall", "rise"]), when="now")
    curves = text.split("## Curves\n")[1].split("## ")[0]
    assert "    loss (1 to 8)\n" in curves
    assert "    fall  █▇▆▅▄▃▂▁\n" in curves
    assert "    rise  ▁▂▃×▅▆▇█\n" in curves


def test_sections_without_a_value_are_left_out() -> None:
    """A run that measured neither speed nor hardware has no such section; a single run has all its settings."""
    write_run("a", [(1, 1, {"loss": 1.0})], config={"lr": 0.1, "model": {"depth": 2}})
    text = report.markdown(open_runs(["a"]), when="now")
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == ["## Results", "## Settings", "## Runs"]
    assert cells(text, "Settings")["model.depth"] == ["2"]
    write_run("b", [(1, 1, {"loss": 2.0})], config={"lr": 0.1, "model": {"depth": 2}})
    assert "## Settings that differ\n\nNone.\n" in report.markdown(open_runs(["a", "b"]), when="now")


def test_reader_says_more_of_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a reader has of its runs together is a section of lines as they are; it is asked once, for its own."""
    asked = []

    def section(self: JournalReader, runs: Sequence[SourceRun]) -> tuple[str, list[str]]:
        asked.append([run.id for run in runs])
        return "Together", ["one | two", "\x1b[1mthree"]

    for name in ("a", "b"):
        write_run(name, losses(5))
    assert "## Together" not in report.markdown(open_runs(["a", "b"]), when="now")
    monkeypatch.setattr(JournalReader, "section", section)
    text = report.markdown(open_runs(["a", "b"]), when="now")
    assert "## Together\n\n```text\none | two\n" in text
    assert "\x1b" not in text
    assert asked == [["a", "b"]]


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    """Names with Markdown, HTML, LaTeX and terminal characters are no markup, neither in Markdown nor on the page."""
    names = (*NASTY, "<img src=x onerror=boom()>", "[x](javascript:boom())", "# heading", "```")
    for number, name in enumerate(names):
        write_run(f"r{number}", losses(5, number), name=name, config={"<b>k</b>|`": f"{name}{number}"})
    runs = open_runs(["digits"])
    text = report.markdown(runs, when="now")
    assert "\x1b" not in text
    page = html_page.as_html(text)
    assert not re.search(r"<(img|script|b|a)[ >]", page)
    assert {
        "th",
        "td",
        "table",
        "div",
        "h1",
        "h2",
        "p",
        "ul",
        "li",
        "thead",
        "tbody",
        "tr",
        "strong",
        "pre",
        "code",
    } >= set(re.findall(r"</?([a-z0-9]+)", page))
    assert page.count("<pre>") == 1  # no name ends the block of curves
    for name in ("$x_{$", "\\textbf{x} 100 %", "&lt;script&gt;alert(1)&lt;/script&gt;", "a|b*_`", "# heading"):
        assert f"<td>{name}</td>" in page


def test_markdowns_own_html_is_shown_and_not_obeyed() -> None:
    """Should a name come this far as it is, the page shows it."""
    page = html_page.as_html("<script>boom()</script>\n\na <b onclick=boom()>name</b>")
    assert "&lt;script&gt;boom()&lt;/script&gt;" in page
    assert "a &lt;b onclick=boom()&gt;name&lt;/b&gt;" in page
    assert not re.search(r"<(script|b)[ >]", page)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", [*POOR, "empty"])
def test_poor_runs_are_reported(kind: str) -> None:
    """All NaN, no steps, one value, nothing at all: alone and beside a whole run, what is missing is –."""
    write_run("poor", POOR.get(kind, []))
    write_run("whole", losses(20), config={"global_batch_size": 4, "seq_length": 8})
    for sources in (["poor"], ["poor", "whole"]):
        runs = open_runs(sources)
        text = report.markdown(runs, when="now")
        if len(sources) == 1:
            assert "## Throughput" not in text
        else:
            assert set(cells(text, "Throughput")["poor"]) == {"–"}
        html_page.save_report(runs, text, Path("out/page.html"), title="Poor")
        assert len(data_of(Path("out/page.html").read_text())["picture"]["legend"]) == len(sources)


@pytest.mark.slow
@needs_browser
def test_page_opens_in_a_browser(tmp_path: Path) -> None:
    """Report and charts stand on one page without a word on the console, on a phone too; zoom and legend work."""
    for number in range(8):
        write_run(f"r{number}", losses(200, number), name=NASTY[number % len(NASTY)] + str(number),
                  config={"global_batch_size": 4, "seq_length": 8, "lr": number})  # fmt: skip
    runs = open_runs(["digits"])
    path = tmp_path / "report.html"
    html_page.save_report(runs, report.markdown(runs, when="now"), path, title="Eight")
    with chromium.browser(tmp_path, width=500, height=900) as window:
        window.open(path)
        assert window.console() == []
        assert window.script("return document.querySelectorAll('canvas').length") >= 6
        assert window.script("return document.querySelectorAll('table').length") == 5
        assert window.script("return document.documentElement.scrollWidth <= innerWidth")
        before = window.script("return charts[0].box.x1")
        window.drag("canvas", -100, 100)
        assert window.script("return charts[0].box.x1") < before
        window.script("document.querySelector('#legend button').click()")
        assert window.script("return charts[0].visible().length") == 7
        assert window.console() == []
        window.emulate(700, 900, media="print")
        assert window.script("return [...document.querySelectorAll('table')].every(t => t.offsetWidth <= innerWidth)")
        assert window.script("return getComputedStyle(document.querySelector('.hint')).display") == "none"
        assert window.script("return getComputedStyle(document.querySelector('#legend')).position") == "static"


WRONG = [
    (("a", "-o", "out.pdf"), 2, "a report's file ends in .md or .html"),
    (("a", "-o", "a.txt/out.md"), 2, "a.txt/out.md can't be written: "),
    (("nosuchrun",), 1, "nosuchrun"),
]


@pytest.mark.parametrize(("arguments", "code", "said"), WRONG, ids=[" ".join(entry[0]) for entry in WRONG])
def test_wrong_input_is_one_line(
    arguments: tuple[str, ...],
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is wrong is one line on stderr."""
    write_run("a", losses(5))
    Path("a.txt").write_text("")
    ended, error = said_in_one_line(["report", *arguments], capsys, monkeypatch)
    assert ended == code
    assert said in error


@pytest.mark.soak
def test_benchmark_measures() -> None:
    """The benchmark of plots and reports draws what it measures, and its bounds are the promised ones."""
    figures = {figure.name.strip(): figure for figure in plotting.measure(True, 2, 2)}
    assert figures["plot of 2 runs x 1,000 points, read before"].at_most == 3.0
    assert figures["its size"].at_most == 5.0
    assert figures["its size"].verdict == "pass"
    if not chromium.missing():
        assert figures["a frame while it pans"].value > 0


def test_command_prints_and_saves(capsys: pytest.CaptureFixture[str]) -> None:
    """Markdown goes to the terminal or a file, whose directory is made; --json holds what was compared."""
    write_run("a", losses(20))
    command.report(["a"])
    assert capsys.readouterr().out.startswith("# Report of 1 run\n")
    for name in ("new/report.md", "new/report.html"):
        command.report(["a"], output=Path(name))
        assert capsys.readouterr().out == f"Saved {name}\n"
    assert Path("new/report.md").read_text().startswith("# Report of 1 run\n")
    command.report(["a"], output=Path("new/report.html"), to_terminal=True)
    printed = capsys.readouterr()
    assert printed.out.startswith("# Report of 1 run\n")
    assert printed.err == "Saved new/report.html\n"
    command.report(["a"], title="Wide *and* deep")
    assert capsys.readouterr().out.startswith("# Wide \\*and\\* deep\n")
    command.report(["a"], as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert math.isfinite(found["runs"][0]["final_loss"])
