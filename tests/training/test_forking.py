"""A fork begins with what its parent had up to a step, in every tracker, and with nothing else of it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import trackers
from tests.backends.wandb.support import online_at
from tests.faults.attempts import FIVE, begin, delivered, points, read
from trackers.analysis.diff import diff, portrait
from trackers.analysis.run_list import as_tree, listing, overview
from trackers.analysis.run_stats import facts
from trackers.as_wandb.init import init as wandb_init
from trackers.benchmark.steps import StepCollector
from trackers.cli.app import app
from trackers.errors import NotFound, UsageError
from trackers.journal.run_directory import RunDirectory
from trackers.journal.stream import StreamReader
from trackers.readers.run_data import load_all
from trackers.records import Alert, ArtifactRecord, Config, Console, Finish, Media
from trackers.training.forking import ATTEMPT
from trackers.training.run import Run

pytestmark = pytest.mark.processes

LOGS: list[str] = []
"""Trackers of plug-ins that write to ``logs``, which their readers read."""


def parent(**more: Any) -> Run:
    """A run of 20 steps with a definition, media, a text, a result, an alert and an artifact, still open."""
    run = begin(id="parent", config={"lr": 0.1, "model": {"depth": 2}}, **more)
    run.define_metric("loss", summary="min")
    for step in range(20):
        run.log({"loss": 20.0 - step, "words": f"at {step}"}, step=step)
        if step in (5, 15):
            run.log({"image": trackers.Image(np.full((4, 4, 3), step, np.uint8))}, step=step)
    run.summary["accuracy"] = 0.5
    run.alert("title", "text")
    Path("model.pt").write_bytes(b"weights")
    run.log_artifact("model.pt", name="model", type="model")
    return run


def loss(run: str) -> list[tuple[int | None, float]]:
    """Steps and values of a run's loss."""
    (data,) = load_all([run])
    rows = data.metrics(long=True).to_pylist()
    return [(row["step"], row["value"]) for row in rows if row["name"] == "loss"]


def test_fork_has_its_parents_history_up_to_the_step(tmp_path: Path) -> None:
    """Values, media, texts and settings; no later ones, no alert, artifact or printed line; the parent may go."""
    first = parent()
    fork = begin(fork_from="parent@10", config={"lr": 0.01}, name="lower", reinit="create_new")
    first.log({"loss": 99.0}, step=3)  # the parent goes on
    first.finish()
    assert (fork.step, fork.resumed) == (10, True)
    assert RunDirectory(fork.dir).read_info().options["TRACKER_FORK_FROM"] == ""
    assert fork.config == {"lr": 0.01, "model": {"depth": 2}, "forked_from": "digits/parent@10"}
    fork.log({"loss": 0.25}, step=11)
    fork.finish()
    before = loss("parent")
    shutil.rmtree(tmp_path / "runs/digits/parent", ignore_errors=True)
    shutil.rmtree("runs/digits/parent", ignore_errors=True)
    assert loss(fork.id) == [*before[:11], (11, 0.25)]
    records = [record for name in RunDirectory(fork.dir).stream_names() if name.attempt == ATTEMPT
               for record in StreamReader(RunDirectory(fork.dir).stream(name)).read(1000)]  # fmt: skip
    assert not [record for record in records if isinstance(record, (Alert, ArtifactRecord, Console, Finish))]
    (image,) = [record for record in records if isinstance(record, Media)]
    assert image.step == 5
    assert (np.load(Path(fork.dir, image.items[0].file)) == 5).all()
    seen = overview(RunDirectory(fork.dir))
    assert seen.results == {"final/loss": 0.25}
    assert seen.last["words"] == "at 10"


@pytest.mark.parametrize(
    "command", ["rm parent", "rm parent --yes", "prune parent --older-than 0", "prune parent --older-than 0 --yes"]
)
def test_parent_does_not_go_without_a_word(command: str, tmp_path: Path) -> None:
    """What deletes it, or would, names its forks, which keep what they have of it."""
    parent(trackers="json", mode="online", inline=True, options={"JSON_DIR": str(tmp_path / "json")}).finish()
    begin(fork_from="parent@10", id="kid").finish()
    begin(fork_from="kid@3", id="grandchild").finish()
    before = loss("kid")
    said = CliRunner().invoke(app, command.split())
    assert (
        "trackers: digits/kid was forked from digits/parent@10: it keeps the values that it has of it\n" in said.stderr
    )
    assert "grandchild" not in said.output
    assert Path("runs/digits/parent/run.json").exists() == ("--yes" not in command)
    assert loss("kid") == before == [(step, 20.0 - step) for step in range(11)]


def test_without_hard_links_media_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """As network filesystems and FAT have none."""
    parent().finish()
    monkeypatch.setattr(os, "link", lambda *args, **more: (_ for _ in ()).throw(OSError(1, "no links here")))
    fork = begin(fork_from="parent@10")
    fork.finish()
    (file,) = Path(fork.dir, "media").rglob("*.npy")
    assert (np.load(file) == 5).all()
    assert file.stat().st_nlink == 1


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "set", "define", "back"]), st.integers(0, 6), st.integers(-3, 3)),
        min_size=1, max_size=25,
    ),
    st.integers(0, 7),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_fork_is_as_a_run_that_was_logged_so_far(calls: list[tuple[str, int, int]], asked: int) -> None:
    """Whatever was logged, set, defined and gone back to: what a fork has of it is what counted up to the step."""
    shutil.rmtree("runs", ignore_errors=True)
    run, step = begin(id="parent", options={"TRACKER_RELAY": False}), 0
    for what, number, value in calls:
        if what == "set":
            run.summary[f"r{number}"] = value
        elif what == "define":
            run.define_metric(f"m{number % 2}", summary=("min", "max", "mean", "last")[value % 4])
        elif what == "back":
            if not step:
                continue
            run.finish()
            run = begin(id="parent", resume="must", step=min(number, step), options={"TRACKER_RELAY": False})
            step = min(number, step)
        else:
            step += number % 3
            run.log({f"m{number % 2}": value}, step=step)
    run.finish()
    (whole,) = load_all(["parent"])
    rows = [(row["name"], row["step"], row["value"]) for row in whole.metrics(long=True).to_pylist()]
    last = max((row[1] for row in rows), default=None)
    if last is None:
        return
    fork = begin(fork_from=f"parent@{min(asked, last)}", options={"TRACKER_RELAY": False})
    (data,) = load_all([fork.id])
    assert sorted((row["name"], row["step"], row["value"]) for row in data.metrics(long=True).to_pylist()) == sorted(
        row for row in rows if row[1] <= asked
    )
    fork.finish()
    gone_back = begin(id="parent", resume="must", step=min(asked, last), options={"TRACKER_RELAY": False})
    gone_back.finish()
    assert overview(RunDirectory(fork.dir)).results == overview(RunDirectory(gone_back.dir)).results


@pytest.mark.slow
@pytest.mark.processes
def test_every_tracker_has_the_fork_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The full curve in W&B, trackio, TensorBoard, MLflow and the JSON log: each point once, and no later one."""
    monkeypatch.chdir(tmp_path)
    parent().finish()
    with online_at(tmp_path) as server:
        fork = begin(trackers=FIVE, mode="online", fork_from="parent@10", id="fork")
        for step in range(11, 15):
            fork.log({"loss": 0.0}, step=step)
        fork.finish(timeout=400)
        run = RunDirectory(fork.dir)
        delivered(run, *FIVE.split(","))
        expected = [(step, 20.0 - step) for step in range(11)] + [(step, 0.0) for step in range(11, 15)]
        info, runs = run.read_info(), dict(server.runs)
        for tracker in FIVE.split(","):
            assert points(read(tracker, info, runs)) == expected, tracker


@pytest.mark.slow
def test_lineage_is_told_by_every_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``show``, ``ls --tree``, ``diff`` of a fork that is read from W&B's file, trackio, TensorBoard, MLflow, a log."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    parent(name="baseline").finish()
    fork = begin(trackers=FIVE, mode="online", inline=True, fork_from="parent@10", id="kid", name="lower")
    fork.log({"loss": 0.0}, step=11)
    fork.finish()
    (log,), (file,) = Path(fork.dir).glob("lower_*.json"), Path(fork.dir).rglob("*.wandb")
    (origin,) = load_all(["parent"])
    for source in (f"json:{log}", f"wandb-file:{file}", "trackio:digits", f"tb:{fork.dir}/tensorboard/*",
                   "mlflow:sqlite:///mlflow.db#digits"):  # fmt: skip
        shown = CliRunner().invoke(app, ["show", source]).stdout
        assert "forked     from digits/parent@10\n" in shown, source
        assert ", attempt" not in shown
        listed = CliRunner().invoke(app, ["ls", "--tree", "parent", source]).stdout
        assert "\n└ lower @10" in listed, source
        (data,) = load_all([source])
        (told,) = [line for line in diff(portrait(origin), portrait(data)) if line.name == "forked_from"]
        assert (told.first, told.second) == (None, "digits/parent@10"), source


def test_fork_is_named_where_runs_are_seen(capsys: pytest.CaptureFixture[str]) -> None:
    """By ``init``, in ``show``, in the tree below its parent, and in a fork of its own."""
    parent(name="baseline").finish()
    child = begin(fork_from="parent@10", config={"lr": 0.01}, id="child", name="lower")
    child.log({"loss": 1.0}, step=12)
    child.finish()
    begin(fork_from="digits/child", id="grandchild", name="lowest").finish()
    said = capsys.readouterr().err
    assert "run lower (digits/child, forked from digits/parent@10)" in said
    assert "the config differs from digits/parent@10's: lr 0.1 → 0.01" in said
    assert "forked     from digits/child@12" in CliRunner().invoke(app, ["show", "grandchild"]).stdout
    names = [line.name for line in as_tree(listing(Path("runs")).lines)]
    assert names == ["baseline", "└ lower @10", "  └ lowest @12"]
    assert names[1] in CliRunner().invoke(app, ["ls", "--tree"]).stdout
    assert [step for step, _ in loss("grandchild")] == [*range(11), 12]


def test_fork_that_goes_on_keeps_its_lineage(capsys: pytest.CaptureFixture[str]) -> None:
    """Requeued with and without the fork's words, and rewound below the fork's step, it is its parent's fork still."""
    parent(name="baseline").finish()
    begin(fork_from="parent@10", id="kid", name="lower").finish()
    for words in ({"fork_from": "parent@10", "resume": "allow"}, {"resume": "must"}, {"resume": "must", "step": 4}):
        again = begin(id="kid", **words)
        again.log({"loss": 0.0})
        again.finish()
        assert RunDirectory(Path(again.dir)).read_info().forked_from == "digits/parent@10"
        assert "attempt " in capsys.readouterr().err
        assert "forked     from digits/parent@10\n" in CliRunner().invoke(app, ["show", "kid"]).stdout
        assert [line.name for line in as_tree(listing(Path("runs")).lines)] == ["baseline", "└ lower @10"]


def test_parents_part_is_no_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    """What counts attempts or restarts counts the fork's own, in results, logs and their readers; a requeue is one."""
    parent().finish()
    trackers_of = ",".join(("json", "benchmark", *LOGS))
    fork = begin(trackers=trackers_of, mode="online", inline=True, fork_from="parent@10", id="kid", name="kid")
    fork.log({"loss": 1.0}, step=11)
    fork.finish()

    def counted() -> list[int]:
        (log,) = Path("runs/digits/kid").glob("kid_*.json")
        sources = ["kid", f"json:{log}", *(f"{name}:{path}" for name in LOGS for path in Path("logs").iterdir())]
        found = []
        for source in sources:
            (data,) = load_all([source])
            counts = facts(data.run, data.blocks(), data.records()), StepCollector().gather(data.records())
            found += [count.attempts for count in counts]
        (written,) = Path("benchmark_results").iterdir()
        return [*found, json.loads(written.read_text())["source"]["restarts"] + 1]

    assert set(counted()) == {1}
    assert "attempt 1\n" in CliRunner().invoke(app, ["show", "kid"]).stdout
    assert not any("attempt" in path.read_text() for path in Path("logs").glob("*/*main.log"))
    again = begin(trackers=trackers_of, mode="online", inline=True, id="kid", resume="must")
    again.log({"loss": 1.0}, step=12)
    again.finish()
    assert set(counted()) == {2}
    assert "(digits/kid, attempt 2)" in capsys.readouterr().err
    assert "attempt 2\n" in CliRunner().invoke(app, ["show", "kid"]).stdout


def test_tree_has_each_run_once_whatever_their_files_say() -> None:
    """A fork whose parent isn't listed stands alone; runs that name one another are listed, too."""
    parent().finish()
    begin(fork_from="parent@3", id="one").finish()
    begin(fork_from="one@2", id="two").finish()
    lines = {line.id: line for line in listing(Path("runs")).lines}
    assert [line.name[:2] == "└ " for line in as_tree([lines["one"], lines["two"]])] == [False, True]
    for line in lines.values():
        line.forked_from = "digits/two@1"
    assert {line.id for line in as_tree(lines.values())} == set(lines)


def test_what_is_forked_can_be_said_in_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """By W&B's argument, the environment, a directory, another project's; not asked of a run that goes on."""
    parent().finish()
    step: list[int] = []
    run = wandb_init(project="digits", fork_from="parent?_step=4", mode="offline", id="w")
    step.append(run.step)
    run.finish()
    monkeypatch.setenv("TRACKER_FORK_FROM", "digits/parent@5")
    run = begin(project="other", id="kept")
    step.append(run.step)
    run.finish()
    monkeypatch.setenv("TRACKER_FORK_FROM", f"{os.path.abspath('runs/digits/parent')}@6")
    run = begin(project="other")
    step.append(run.step)
    run.finish()
    monkeypatch.setenv("TRACKER_FORK_FROM", "digits/parent")
    run = begin(project="other")
    step.append(run.step)
    run.finish()
    assert step == [5, 5, 6, 19]  # W&B's is the next one's
    shutil.rmtree("runs/digits")
    again = begin(project="other", id="kept", resume="allow")
    again.log({"loss": 1.0})
    again.finish()
    assert [step for step, _ in loss("kept")] == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("reference", "error", "said"),
    [
        (
            "nobody@3",
            NotFound,
            "/runs/digits: give an id, project/id or a run's directory, and @STEP; `trackers ls` lists runs",
        ),
        ("../../etc@3", NotFound, "no run '../../etc'"),
        ("parent@20", UsageError, "its last step is 19"),
        ("empty@0", UsageError, "nothing has been logged there at a step yet"),
    ],
)
def test_what_cannot_be_forked_is_one_line_and_leaves_nothing(
    reference: str, error: type[Exception], said: str
) -> None:
    """Nothing of the new run is left behind."""
    parent().finish()
    begin(id="empty").finish()
    with pytest.raises(error) as raised:
        begin(fork_from=reference, id="new")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not Path("runs/digits/new").exists()


def test_full_disk_leaves_nothing_of_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """``init`` raises; the streams and media that were written are gone."""
    parent().finish()
    monkeypatch.setattr("trackers.training.forking._put", lambda *args: (_ for _ in ()).throw(OSError(28, "No space")))
    with pytest.raises(UsageError, match="No space"):
        begin(fork_from="parent@10", id="new")
    assert not list(Path("runs/digits/new").rglob("*.*"))


def test_file_outside_of_the_parent_is_not_brought(tmp_path: Path) -> None:
    """A stream that names another file of this machine, as a stranger's may, gives the fork none."""
    run = parent()
    run.finish()
    secret = Path("secret.npy")
    secret.write_bytes(b"secret")
    stream = Path(run.dir, "streams/rank-0.1.jsonl")
    lines = stream.read_text().replace("media/", f"{secret.resolve()}#")
    stream.write_text(lines.replace(f"{secret.resolve()}#", "../../../secret.npy?"))
    fork = begin(fork_from="parent@10")
    fork.finish()
    assert not [path for path in Path(fork.dir).rglob("*") if path.is_file() and path.read_bytes() == b"secret"]


def test_fork_has_no_setting_that_it_changes_from_its_parent() -> None:
    """What its parent changed while it trained, too: MLflow keeps the first value that it hears of."""
    first = parent()
    first.config.update({"lr": 0.5, "more": 1})
    first.finish()
    fork = begin(fork_from="parent@10", config={"lr": 0.01})
    fork.finish()
    begun = {"lr": 0.01, "model": {"depth": 2}, "more": 1, "forked_from": "digits/parent@10"}
    assert RunDirectory(fork.dir).read_info().config == begun
    told = StreamReader(Path(fork.dir, "streams", f"rank-0.{ATTEMPT}.jsonl")).read(1000)
    assert not [record for record in told if isinstance(record, Config)]
