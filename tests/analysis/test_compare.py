"""``trackers compare`` and ``trackers.compare_runs``: figures, what differs, speed-up, groups, formats, bad input."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

import trackers
from tests.analysis.support import T0, write_run
from trackers.analysis import fitting, tables
from trackers.analysis.compare import compare_runs
from trackers.analysis.comparison import LONGEST_LABEL, a_line_each, side_by_side
from trackers.analysis.figures import efficiency, speedup
from trackers.analysis.tables import TextTable, escape_markdown, render
from trackers.cli.app import app
from trackers.errors import MissingPackage, NotFound, UsageError

NASTY = ["a|b", "*bold* _x_ `c`", "<script>alert(1)</script>", r"\input{x} $5 & 50% #1 ~^{}", "$(rm -rf /); 'q' \"p\"",
         "# head", "- item", "1. one", "line\nbreak", "\x1b[31mred", "", " ", "ü 漢字"]  # fmt: skip


def run_cli(*arguments: str) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(app, list(arguments))


def losses(*values: float, key: str = "train_loss", seconds: float = 1.0) -> list[Any]:
    """Rows of one metric, a step each, so many seconds apart."""
    return [(step, seconds * step, {key: value}) for step, value in enumerate(values)]


def two() -> None:
    """A run on one GPU with a batch of 4, and one on two GPUs with 8, at the same steps/s."""
    write_run("one", losses(3.0, 1.0, 2.0), config={"global_batch_size": 4, "lr": 0.1, "model": {"depth": 2}},
              summary={"train_loss": 9.0})  # fmt: skip
    write_run("two", losses(3.0, 2.0, 1.5), config={"global_batch_size": 8, "lr": 0.1, "model": {"depth": 2}},
              world_size=2)  # fmt: skip


def test_compare_gives_all_figures_of_a_key() -> None:
    """Result, best, last, smallest and largest of the chosen key, for each run."""
    two()
    found = compare_runs(["one", "two"], ["train_loss"])
    figures = [run["metrics"]["train_loss"] for run in found["runs"]]
    assert [figures[0][name] for name in ("final", "best", "last", "min", "max")] == [9.0, 1.0, 2.0, 1.0, 3.0]
    assert [figures[1][name] for name in ("final", "best", "last", "min", "max")] == [None, 1.5, 1.5, 1.5, 3.0]
    assert (figures[0]["min_step"], figures[0]["count"]) == (1, 3)


def test_only_settings_that_differ_are_shown() -> None:
    """Equal settings are left out; one that a run lacks differs."""
    two()
    write_run("three", losses(1.0, 1.0), config={"global_batch_size": 8, "model": {"depth": 2}})
    assert compare_runs(["one", "two"]).differing == ["global_batch_size"]
    found = compare_runs(["one", "three"])
    assert found.differing == ["global_batch_size", "lr"]
    assert [run["config"].get("lr") for run in found.runs] == [0.1, None]


def test_runs_of_one_name_are_told_apart() -> None:
    """Two runs of one name carry their ids; one run by two sources carries those; None is as absent."""
    write_run("one", losses(1.0, 2.0), name="same", config={"a": None})
    write_run("two", losses(1.0, 2.0), name="same")
    done = run_cli("compare", "one", "two")
    assert done.stdout.splitlines()[0].split("  ")[-2:] == ["same (one)", "same (two)"]
    assert "config.a" not in done.stdout
    log = {"run_name": "same", "run_id": "one", "training_iterations": [{"iter": 0, "loss": 1.0}]}
    Path("log.json").write_text(json.dumps(log))
    assert "same (log.json)" in run_cli("compare", "one", "log.json").stdout.splitlines()[0]


@pytest.mark.parametrize("count", [3, 8])
def test_long_names_and_sources_get_short_labels_and_a_legend(count: int, tmp_path: Path) -> None:
    """No label is longer than its bound or twice there; a legend in each form, and in a notebook, says what it is."""
    long = "llama-3-8b-sft-cosine-warmup-2000-bs512-seed"
    names = [
        f"{long}1",
        f"{long}2-final",
        "x" * 20 + "A" + "x" * 60,
        "x" * 20 + "B" + "x" * 60,
        "plain",
        "same",
        "same",
    ]
    names = ["same", *names][:count] if count > 3 else [names[0], "same", "same"]
    sources = []
    for number, name in enumerate(names):
        path = tmp_path / ("a" * 60) / f"of the{number}" / "result.json"
        path.parent.mkdir(parents=True)
        log = {
            "run_name": name,
            "run_id": "r",
            "training_iterations": [{"iter": 0, "loss": 1.0}, {"iter": 1, "loss": 2}],
        }
        path.write_text(json.dumps(log))
        sources.append(f"json:{path}")
    comparison = compare_runs(sources)
    if count < 7:
        table = side_by_side(comparison, ["loss"], [], ["last"])
        labels = table.headers[1:]
    else:
        table = a_line_each(comparison, ["loss"], [], {"loss": "last"})
        labels = [row[0] for row in table.rows]
    assert len(labels) == len(set(labels)) == count
    assert max(map(len, labels)) <= LONGEST_LABEL
    assert ("plain" in labels) == (count > 3)
    assert "plain" not in table.legend
    assert set(table.legend) == {label for label in labels if label != "plain"}
    for label, name, source in zip(labels, names, sources, strict=True):
        meaning = table.legend.get(label, label)
        assert (source if name == "same" else name) in meaning
    shown = comparison._repr_html_()
    assert max(map(len, re.findall(r">([^<]+)</t[hd]>", shown))) <= LONGEST_LABEL
    for label, meaning in table.legend.items():
        assert f"<p>{label} = {meaning}</p>" in shown
        assert f"\n{label} = {meaning}\n" in fitting.in_parts(table, 80)
        assert f"\n{label} = {meaning}\n" in fitting.fitted(table, 80).text
        assert f"\n- {escape_markdown(label)} = {escape_markdown(meaning)}\n" in render(table, "markdown")
        assert f"\n% {label} = {meaning}\n" in render(table, "latex")
    done = run_cli("compare", *sources, "--columns", "loss")
    assert all(source in done.stdout for source, name in zip(sources, names, strict=True) if name == "same")


def test_superseded_steps_do_not_count() -> None:
    """After a rewind the figures are those of the run as it is now: what a later attempt went back over is gone."""
    options = {"TRACKER_RELAY": False}
    run = trackers.init("json", project="digits", mode="offline", options=options)
    for step in range(10):
        run.log({"val_loss": 10.0 - step}, step=step)
    run.finish()
    again = trackers.init("json", project="digits", id=run.id, resume="must", step=4, mode="offline", options=options)
    again.log({"val_loss": 7.0}, step=5)
    again.finish()
    (row,) = compare_runs([run.id], ["val_loss"]).runs
    figures = row["metrics"]["val_loss"]
    assert (figures["count"], figures["last"], figures["min"], figures["min_step"]) == (6, 7.0, 6.0, 4)
    assert (row["steps"], row["attempts"]) == (5, 2)


def test_speedup_counts_samples_and_efficiency_gpus() -> None:
    """Twice the batch at the same steps/s on two GPUs: twice as fast, 100 % efficient; the one-GPU run is the base."""
    two()
    found = compare_runs(["two", "one"])
    assert found.baseline.endswith("one")
    assert [(run["speedup"], run["efficiency_percent"]) for run in found.runs] == [(2.0, 100.0), (1.0, 100.0)]
    assert compare_runs(["one", "two"], baseline="two").runs[0]["speedup"] == 0.5


def test_speedup_and_efficiency_known() -> None:
    """A session log's example: 1.54 against 0.83 is 1.855 times, 92.8 % of two GPUs; zero and unknown give none."""
    times = speedup(1.54, 0.83)
    assert times == pytest.approx(1.8554, abs=1e-4)
    assert efficiency(times, 2) == pytest.approx(92.77, abs=0.01)
    assert efficiency(1.5, 4, 2) == 75.0
    for one, other in ((None, 1.0), (1.0, None), (0.0, 1.0), (1.0, 0.0), (math.nan, 1.0), (1.0, math.inf)):
        assert speedup(one, other) is None
    assert efficiency(2.0, 0) is None
    assert efficiency(None, 2) is None


def test_speedup_without_batches_is_from_steps_and_says_so() -> None:
    """Where no run says its batch, steps/s are all there is, and a warning says what that means."""
    write_run("slow", losses(1.0, 1.0, 1.0, seconds=2.0))
    write_run("fast", losses(1.0, 1.0, 1.0))
    found = compare_runs(["slow", "fast"])
    assert [run["speedup"] for run in found.runs] == [1.0, 2.0]
    assert any("from steps/s" in text for text in found.warnings)


def test_run_without_batch_takes_no_speedup_from_others() -> None:
    """Beside runs that say their batch it is no baseline, although it has the fewest GPUs, and is named."""
    write_run("unknown", losses(1.0, 1.0, 1.0))
    for gpus in (2, 4):
        write_run(f"gpus{gpus}", losses(1.0, 1.0, 1.0), config={"global_batch_size": 4 * gpus, "num_gpus": gpus})
    found = compare_runs(["unknown", "gpus2", "gpus4"])
    assert [run["speedup"] for run in found.runs] == [None, 1.0, 2.0]
    (said,) = [text for text in found.warnings if "speed-up" in text]
    assert said.startswith("no speed-up of unknown: samples/s need global_batch_size")
    found = compare_runs(["unknown", "gpus2"], baseline="unknown")
    assert [run["speedup"] for run in found.runs] == [1.0, None]
    said = " ".join(found.warnings)
    assert "no run says" not in said
    assert "no speed-up of gpus2" in said


@pytest.mark.parametrize(
    ("config", "other", "said"),
    [
        ({"global_batch_size": 8}, {"global_batch_size": 16}, "batch size differs"),
        ({"global_batch_size": 8}, {"trainer": {"train_batch_size": 16}}, "batch size differs"),
        ({"batch_size": 8}, {"batch_size": 16}, "batch size differs"),
        ({"seq_len": 8}, {"seq_len": 16}, "sequence length differs"),
        ({"train": {"dataset": "a"}}, {"train": {"dataset": "b"}}, "data differs (dataset a; dataset b)"),
        ({"dtype": "bf16"}, {"dtype": "fp32"}, "precision differs"),
        ({"model": {"n_layer": 2}}, {"model": {"n_layer": 4}}, "model size differs"),
        ({"gpu_name": "MI300X"}, {"gpu_name": "H100"}, "GPUs differ (MI300X; H100)"),
    ],
)
def test_unfair_configurations_are_named(config: dict[str, Any], other: dict[str, Any], said: str) -> None:
    """What makes a comparison unfair is a warning with both values; a learning rate isn't."""
    write_run("one", losses(1.0, 1.0), config={**config, "lr": 1})
    write_run("two", losses(1.0, 1.0), config={**other, "lr": 2})
    warnings = compare_runs(["one", "two"]).warnings
    assert any(text.startswith(said) for text in warnings), warnings
    assert not any("lr" in text for text in warnings)


@pytest.mark.parametrize(
    ("config", "other"),
    [
        ({"global_batch_size": 8}, {"trainer": {"train_batch_size": 8}}),
        ({"global_batch_size": 8, "batch_size": 2}, {"total_batch_size": 8, "per_device_train_batch_size": 4}),
        ({"seq_length": 16}, {"block_size": 16}),
    ],
)
def test_same_work_under_two_names_is_no_difference(config: dict[str, Any], other: dict[str, Any]) -> None:
    """Programs name a step's samples and a sequence's length differently: what is equal makes nothing unfair."""
    write_run("one", losses(1.0, 1.0), config=config)
    write_run("two", losses(1.0, 1.0), config=other)
    assert not [text for text in compare_runs(["one", "two"]).warnings if "differs" in text]


def test_unfinished_and_unequal_lengths_are_named() -> None:
    """A run that crashed, and one that trained for longer, are said."""
    write_run("one", losses(1.0, 1.0), status="crashed")
    write_run("two", losses(1.0, 1.0, 1.0))
    warnings = compare_runs(["one", "two"]).warnings
    assert any("one crashed" in text for text in warnings)
    assert any(text.startswith("lengths differ (last step 1; 2)") for text in warnings)


def test_runs_come_in_the_order_asked_for_and_once() -> None:
    """A project's runs come newest first; a run named twice is one run."""
    for number in range(3):
        write_run(f"run{number}", losses(1.0, 2.0), created=T0 + number)
    assert [run["id"] for run in compare_runs(["run1", "digits", "run1"]).runs] == ["run1", "run2", "run0"]


def test_documented_snippet_reads_json_logs_and_prints_them(tmp_path: Path) -> None:
    """The training JSON log's own snippet prints runs: by file name, MFU without -100, a missing value as nan."""
    log = {"run_name": "run_a", "start_time": "2023-10-31T16:23:45", "config": {"lr": 1},
           "training_iterations": [{"iter": 0, "loss": 11.0, "time_ms": 900.0, "mfu": -100.0},
                                   {"iter": 1, "loss": 10.5, "time_ms": 100.0, "mfu": 30.0}],
           "eval_steps": [{"iter": 0, "train_loss": 11.0, "val_loss": 10.9, "lr": 0.1},
                          {"iter": 1, "train_loss": 10.5, "val_loss": 10.95, "lr": 0.1}]}  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps(log))
    bare = {"run_name": "run_b", "training_iterations": []}
    (tmp_path / "b.json").write_text(json.dumps(bare))
    comparison = trackers.compare_runs([tmp_path / "a.json", str(tmp_path / "b.json")])
    lines = [
        f"{run['run_name']}: final_loss={run['final_loss']:.4f}, "
        f"best_val={run['best_val_loss']:.4f}, mfu={run['avg_mfu']:.2f}%, {run['total_iters']}"
        for run in comparison["runs"]
    ]
    assert lines[0] == "run_a: final_loss=10.5000, best_val=10.9000, mfu=30.00%, 2"
    assert lines[1] == "run_b: final_loss=nan, best_val=nan, mfu=nan%, 0"


def test_to_pandas_has_a_row_for_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same figures as a DataFrame; without pandas one line names the extra."""
    two()
    table = compare_runs(["one", "two"]).to_pandas()
    assert table["train_loss.best"].tolist() == [1.0, 1.5]
    assert table["config.global_batch_size"].tolist() == [4, 8]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"pip install 'trackers-relay\[analysis\]'"):
        compare_runs(["one", "two"]).to_pandas()


def test_by_seed_sums_up_runs_that_differ_in_seeds_alone() -> None:
    """Runs of one configuration and several seeds are one group: n, mean, deviation, exact interval."""
    for lr, base in ((0.1, 1.0), (0.2, 5.0)):
        for seed in range(3):
            config = {"lr": lr, "train": {"seed": seed}}
            write_run(f"run-{lr}-{seed}", losses(9.0, base + seed, key="val_loss"), config=config)
    done = run_cli("compare", "digits", "--by", "seed", "--json")
    assert done.exit_code == 0, done.output
    groups = {group["label"]: group for group in json.loads(done.stdout)["groups"]}
    assert set(groups) == {"lr=0.1", "lr=0.2"}
    found = groups["lr=0.1"]["metrics"]["val_loss"]
    assert (found["n"], found["mean"], found["deviation"]) == (3, 2.0, 1.0)
    assert (found["low"], found["high"]) == (1.0, 3.0)  # all three of one seed: 1 of 27 resamples


@pytest.mark.parametrize(
    ("by", "labels"),
    [
        ("group", {"a": 2, "(none)": 1}),
        ("tag", {"x": 2, "y": 1, "(none)": 1}),
        ("config.lr", {"lr=1": 1, "lr=2": 1, "(none)": 1}),
    ],
)
def test_by_group_tag_and_setting(by: str, labels: dict[str, int]) -> None:
    """Each group has its runs; a run with several tags is in each, one with none in a group of its own."""
    write_run("r0", losses(1.0, 2.0), group="a", tags=["x", "y"], config={"lr": 1})
    write_run("r1", losses(1.0, 2.0), group="a", tags=["x"], config={"lr": 2})
    write_run("r2", losses(1.0, 2.0))
    done = run_cli("compare", "digits", "--by", by, "--json")
    assert {group["label"]: len(group["runs"]) for group in json.loads(done.stdout)["groups"]} == labels
    assert "speed-up" not in done.stderr


def test_few_runs_stand_side_by_side_and_many_below_each_other() -> None:
    """Up to six runs have a column each; more have a line each with one figure of each metric."""
    for number in range(7):
        write_run(f"run{number}", losses(2.0, 1.0 + number), config={"lr": number}, created=T0 - number)
    few = run_cli("compare", "run0", "run1").stdout.splitlines()
    assert few[0].split() == ["run", "run0", "run1"]
    assert [line.split() for line in few if line.startswith("train_loss best")] == [["train_loss", "best", "1", "2"]]
    many = run_cli("compare", "digits").stdout.splitlines()
    assert many[0].split()[:6] == ["run", "status", "steps", "config.lr", "train_loss", "best"]
    assert many[1].split()[:5] == ["run0", "finished", "1", "0", "1"]
    assert len(many) == 8


def test_csv_has_everything_as_numbers() -> None:
    """CSV has a row for each run, every figure in its own column, at full precision."""
    write_run("one", losses(1 / 3, math.nan), config={"a,b": 1})
    write_run("two", losses(1.0, math.inf), config={"a,b": 2})
    rows = list(csv.DictReader(io.StringIO(run_cli("compare", "one", "two", "--format", "csv").stdout)))
    assert [row["train_loss.best"] for row in rows] == [repr(1 / 3), "1.0"]
    assert [row["train_loss.last"] for row in rows] == ["NaN", "Infinity"]
    assert [row["config.a,b"] for row in rows] == ["1", "2"]


def test_json_is_strict() -> None:
    """NaN and infinities are names, as in the journal."""
    write_run("one", losses(math.nan, math.nan))
    done = run_cli("compare", "one", "--json")
    (run,) = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(name))["runs"]
    assert run["metrics"]["train_loss"]["last"] == "NaN"
    assert run["metrics"]["train_loss"]["best"] is None


@pytest.mark.heavy
@pytest.mark.parametrize("form", ["table", "markdown", "csv", "latex"])
@pytest.mark.parametrize("name", NASTY)
def test_nasty_names_in_every_format(form: str, name: str) -> None:
    """Names with Markdown, HTML, LaTeX, shell and terminal characters break no table and reach no terminal raw."""
    write_run("one", losses(1.0, 2.0, key=name or "x"), name=name or "x", config={name: name})
    write_run("two", losses(1.0, 2.0, key=name or "x"), config={name: 2})
    done = run_cli("compare", "one", "two", "--keys", "*", "--format", form)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    if form != "csv":
        assert "\x1b" not in done.output
    if form == "markdown":
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
        assert "<script>" not in done.stdout
    elif form == "latex":
        rows = [line for line in lines if line.endswith(r" \\")]
        assert all(len(re.findall(r"(?<!\\)&", row)) == 2 for row in rows)
    elif form == "csv":
        assert {len(row) for row in csv.reader(io.StringIO(done.stdout))} == {len(next(csv.reader(lines)))}


@pytest.mark.heavy
@settings(max_examples=100, deadline=None)
@given(st.text(max_size=30))
def test_latex_escapes_leave_nothing_active(text: str) -> None:
    """Whatever a name holds, taking our escapes away leaves no character that LaTeX obeys."""
    left = re.sub(r"\\(text\w+|symbol)\{\w*\}|\\[{}$&#_%]|\{[\[\]]\}|\$\\\w+\$", "", tables.escape_latex(text))
    assert not set(left) & set("\\{}$&#_%~^")


@pytest.mark.heavy
@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab|*_`<>[]()#+-.!&\\~ 1\n", max_size=20))
def test_markdown_escapes_leave_the_text(text: str) -> None:
    """Taking backslashes and entities away gives the text back, and no pipe stands bare."""
    escaped = tables.escape_markdown(text)
    assert not re.search(r"(?<!\\)(\\\\)*\|", escaped)
    bare = re.sub(r"\\(.)", r"\1", escaped).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    assert bare == tables.plain(text)


def test_wide_characters_are_aligned() -> None:
    """Columns stand below each other where a name is of double width."""
    lines = tables.render(TextTable(["run", "x"], [["漢字", 1], ["a", None]]), "table").splitlines()
    assert lines == ["run   x", "漢字  1", "a     –"]


def test_missing_values_show_as_a_dash() -> None:
    """A metric or setting that a run lacks is – in the table, and nothing crashes."""
    write_run("one", losses(1.0, 2.0), config={"lr": 1})
    write_run("two", losses(1.0, 2.0, key="other"))
    done = run_cli("compare", "one", "two")
    assert done.exit_code == 0, done.output
    cells = {line.split("  ")[0]: line.split()[-2:] for line in done.stdout.splitlines()}
    assert cells["config.lr"] == ["1", "–"]
    assert cells["train_loss best"] == ["1", "–"]
    assert cells["other last"] == ["–", "2"]


@pytest.mark.heavy
@pytest.mark.parametrize(
    "rows",
    [[], [(None, 0, {"loss": 1.0})], [(1, 1, {"loss": math.nan})], [(0, 0, {"loss": 0.0, "perf/iter_ms": 0.0})]],
    ids=["empty", "no steps", "all NaN", "zero"],
)
def test_poor_runs_are_compared(rows: list[Any]) -> None:
    """Empty, without steps, all NaN, zero times: alone and beside another run, in each format and summed up."""
    write_run("poor", rows)
    write_run("other", losses(1.0, 2.0))
    for arguments in (["poor"], ["poor", "other"], ["poor", "other", "--by", "seed"]):
        for form in ("table", "markdown", "csv", "latex", "json"):
            done = run_cli("compare", *arguments, "--format", form)
            assert done.exit_code == 0, done.output


def test_result_is_a_figure_of_its_metric() -> None:
    """A pattern that fits both gives one entry for a metric and its result; a result's own pattern gives the result."""
    write_run("one", losses(1.0, 2.0), summary={"final/train_loss": 0.5, "final/score": 3})
    assert trackers.compare_runs(["one"], keys=["*"]).keys == ["train_loss", "final/score"]
    assert trackers.compare_runs(["one"], keys=["final/*"]).keys == ["final/train_loss", "final/score"]


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (["nothing"], NotFound, "no run"),
        (["one", "--keys", "nothing"], NotFound, "no run has a metric 'nothing'; `trackers keys SOURCE` lists"),
        (["one", "--keys", "train_los"], NotFound, "no run has a metric 'train_los': did you mean 'train_loss'?"),
        (["one", "--baseline", "nothing"], NotFound, "isn't among the runs compared: one"),
        (["one", "--format", "pdf"], UsageError, "unknown format 'pdf': known are table"),
        (["one", "--figures", "median"], UsageError, "unknown figure 'median': known are final"),
        (["one", "--by", "color"], UsageError, "seed, group, tag or config.KEY"),
        (["one", "--by", "seed", "--baseline", "one"], UsageError, "--baseline can't be had with --by"),
        (["one", "--by", "seed", "--config", "lr"], UsageError, "--config can't be had with --by"),
        (["one", "--by", "seed", "--figures", "best,last"], UsageError, "--by shows one figure of each metric"),
        (["one", "--by", "config.nothing"], UsageError, "no run has the setting 'nothing'; there is lr"),
        (["one", "--by", "config.l"], UsageError, "no run has the setting 'l': did you mean 'lr'?"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], error: type[Exception], said: str) -> None:
    """What can't be done is said with what is known."""
    write_run("one", losses(1.0, 2.0), config={"lr": 1})
    done = run_cli("compare", *arguments)
    assert isinstance(done.exception, error)
    assert said in str(done.exception)
    assert "\n" not in str(done.exception)


def test_unreadable_run_among_others_is_left_out_and_said() -> None:
    """One damaged identity doesn't keep the other runs from being compared."""
    write_run("one", losses(1.0, 2.0))
    identity = Path(write_run("two", losses(1.0, 2.0)), "run.json")
    identity.unlink()
    identity.mkdir()
    done = run_cli("compare", "digits")
    assert done.exit_code == 0
    assert "left out" in done.stderr
    assert "two" in done.stderr


@pytest.mark.slow
def test_kept_facts_need_no_numpy() -> None:
    """Runs that didn't change are compared without loading what reads them."""
    run = write_run("one", losses(1.0, 2.0))
    for path in (run / "run.json", run / "streams", *run.glob("streams/*")):
        os.utime(path, (T0, T0))
    run_cli("compare", "one")
    code = (
        "import sys; from trackers.analysis.compare import compare_runs as c; c(['one']); print('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("count", [2, 8])
def test_comparison_in_a_notebook_is_a_table(count: int) -> None:
    """Runs as columns, many as rows; the best is bold; names are text; warnings stand below."""
    for number in range(count):
        write_run(
            f"r{number}", [(0, 0, {"loss": 1.0 + number})], config={"<b>": number, "global_batch_size": number + 1}
        )
    html = compare_runs([f"r{number}" for number in range(count)])._repr_html_()
    assert html.startswith("<table><thead>")
    assert re.search(r"<b>1</b></td>", html)
    assert "config.&lt;b&gt;" in html
    assert (html.count("<tr>") == count + 1) == (count > 6)
    assert "<p>" in html
