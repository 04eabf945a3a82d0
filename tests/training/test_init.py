"""``init`` is strict before the first step: what can be seen is one clear error; what is fine starts quickly."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trackers
from tests import ROOT
from trackers import errors
from trackers.journal.attempts import AttemptHistory
from trackers.journal.run_directory import RunDirectory
from trackers.support import plugins
from trackers.training import resume
from trackers.training.disabled import NullRun
from trackers.training.init import current
from trackers.training.run import Run


@pytest.fixture(autouse=True)
def _no_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_RELAY", "n")


def begin(*arguments: Any, **more: Any) -> Run:
    run = trackers.init(*arguments, **{"mode": "offline", **more})
    assert isinstance(run, Run)
    return run


def test_unknown_tracker_names_the_nearest_and_all_known() -> None:
    """A misspelt tracker is an error that helps."""
    words = r"did you mean 'wandb'.*Known: aim, benchmark, clearml, comet, console, csv, dvclive, json"
    with pytest.raises(errors.UnknownTracker, match=words) as error:
        trackers.init("wandbb")
    assert "\n" not in str(error.value)
    assert not Path("runs").exists()


@pytest.mark.parametrize("name", plugins.ours("tracker"))
def test_tracker_of_a_distribution_that_isnt_installed_says_what_to_install(name: str) -> None:
    """What was built in once, or is documented here, is one line with its command; nothing is begun."""
    with pytest.raises(errors.MissingPackage) as error:
        trackers.init(name)
    assert str(error.value) == f"tracker '{name}' is a distribution of its own: pip install 'trackers-relay[{name}]'"
    assert not Path("runs").exists()
    extras = re.search(rf"^{name} = (.*)$", (ROOT / "pyproject.toml").read_text("utf-8"), re.M)
    assert extras is not None
    assert f'"trackers-{name}"' in extras[1]


def test_both_is_not_a_tracker() -> None:
    """An unknown word never silently enables nothing."""
    with pytest.raises(errors.UnknownTracker):
        trackers.init("both")


def test_missing_package_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracker whose client isn't installed is refused with the command that installs it."""
    monkeypatch.setattr("trackers.backends.registry._installed", lambda module: module != "mlflow")
    with pytest.raises(
        errors.MissingPackage, match=r"needs the mlflow package: pip install 'trackers-relay\[mlflow\]'"
    ):
        trackers.init("json,mlflow", mode="online")


def test_missing_login_is_refused_outside_offline_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a W&B key an online run is refused at once; offline it starts."""
    monkeypatch.delenv("WANDB_MODE")
    with pytest.raises(errors.CredentialsMissing, match="wandb login"):
        trackers.init("wandb", mode="online")
    begin("wandb").finish()


@pytest.mark.parametrize("run_id", ["../evil", "a/b", "", " ", ".", "..", "a" * 200, "x\n", "con:1", "-rf", "é"])
def test_unsafe_id_is_refused(run_id: str) -> None:
    """An id that can't be a file name never reaches the disk; the empty one means a random id."""
    if not run_id:
        begin("json", id=run_id).finish()
        return
    with pytest.raises(errors.UsageError, match=r"can't be a file name|TRACKER_RUN_ID is up to 128 letters"):
        begin("json", id=run_id)


@pytest.mark.parametrize("project", ["../../evil", "a/b\\c", "..", "<script>", "per%cent", "имя", "x" * 60, "\x1b[31m"])
def test_odd_project_names_stay_inside_the_directory(project: str) -> None:
    """Any project name works, and its folder is one below the runs directory."""
    run = begin("json", project=project)
    assert run.project == project
    assert Path(run.dir).parent.parent == Path("runs").absolute()
    assert Path(run.dir).resolve().is_relative_to(Path("runs").resolve())
    run.finish()


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc/1").exists(), reason="needs Linux")
def test_directory_that_cannot_be_made_is_named() -> None:
    """A place that can't be written is one line that names it and the option."""
    Path("file").write_text("")
    with pytest.raises(errors.UsageError, match=r"file.*TRACKER_DIR"):
        begin("json", dir="file/runs")
    with pytest.raises(errors.UsageError, match=r"File name too long.*TRACKER_DIR"):
        begin("json", id="r", dir="x" * 300)


@pytest.mark.skipif(sys.platform == "win32", reason="a current directory can't be deleted there")
def test_current_directory_that_was_deleted_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``init`` and the commands say what is wrong and what to do."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(errors.UsageError, match="current directory was deleted: change to one that exists"):
        begin("json", dir=str(tmp_path / "runs"))
    command = [sys.executable, "-m", "trackers", "show-config"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.stderr == "trackers: the current directory was deleted: change to one that exists\n"


def test_commands_that_are_named_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    """A directory with a space in its name is quoted in the command that delivers the run."""
    begin("json", id="r", project="p", dir="my runs").finish()
    assert "deliver with `trackers sync 'my runs/p/r'`" in capsys.readouterr().err


def test_second_init_finishes_the_first() -> None:
    """As W&B's reinit: the earlier run ends; "create_new" leaves it open."""
    first = begin("json")
    second = begin("json")
    assert first._recorder.finished
    third = begin("json", reinit="create_new")
    assert not second._recorder.finished
    assert current() is third
    second.finish()
    third.finish()
    assert current() is None


@pytest.mark.parametrize("how", [{"mode": "disabled"}, {"trackers": "none"}, {"rank": 3}])
def test_runs_that_record_nothing_take_every_call(how: dict[str, Any]) -> None:
    """Disabled, none and other ranks: every call works, no file appears."""
    run = trackers.init(**{"trackers": "json", "mode": "offline", "config": {"lr": 1}, **how})
    assert isinstance(run, NullRun)
    run.log({"a": 1}, step=0)
    run.summary["x"] = 1
    run.config.lr = 2
    assert (run.summary["x"], run.config["lr"]) == (1, 2)
    run.define_metric("a", summary="min")
    run.alert("x")
    assert run.log_artifact("nothing").version is None
    with run:
        pass
    run.finish()
    assert not Path("runs").exists()


def test_null_run_has_every_public_name_of_a_run() -> None:
    """Code written against a run works with the null object."""
    null = NullRun()
    missing = [name for name in dir(Run) if not name.startswith("_") and not hasattr(null, name)]
    assert missing == []


@pytest.mark.parametrize(
    ("variable", "rank", "logs"),
    [("RANK", "0", True), ("RANK", "1", False), ("SLURM_PROCID", "2", False), ("OMPI_COMM_WORLD_RANK", "0", True)],
)
def test_only_the_main_rank_logs(monkeypatch: pytest.MonkeyPatch, variable: str, rank: str, logs: bool) -> None:
    """The launcher's variable decides; other ranks never create a run."""
    monkeypatch.setenv(variable, rank)
    run = trackers.init("json", mode="offline")
    assert isinstance(run, Run) == logs
    assert Path("runs").exists() == logs
    run.finish()


def test_each_rank_may_have_a_run_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """``rank="own"``: whatever the launcher says, values across ranks are this process's."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_PORT", "29999")
    ids = set()
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        run = begin("json", rank="own", project="p")
        run.log({"loss": trackers.Mean(3.0), "plain": 1.0}, step=1)
        run.finish()
        ids.add(run.id)
        with pytest.raises(errors.UsageError, match="or 'own' for a run of its own"):
            trackers.init("json", rank="mine")
        assert '"loss":3.0' in (Path(run.path) / "streams/rank-0.1.jsonl").read_text()
    assert len(ids) == 2


def test_last_rank_may_be_the_main_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRACKER_RANK=last: pipelines have the loss on the last rank."""
    monkeypatch.setenv("TRACKER_RANK", "last")
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")
    begin("json").finish()
    monkeypatch.setenv("RANK", "0")
    assert isinstance(trackers.init("json", mode="offline"), NullRun)


def test_tags_of_a_later_attempt_are_told() -> None:
    """What a continued run is given is said to trackers that have the run, beside the tags that training had set: W&B,
    MLflow and trackio kept those of the first attempt."""
    first = begin("json", id="abc", project="p", tags=["x"], notes="n")
    first.tags += ("y, z",)
    first.finish()
    second = begin("json", id="abc", project="p", resume="must", tags=["w"], group="g")
    assert (second.tags, second.group, second.notes) == (("x", "y, z", "w"), "g", "n")
    second.finish()
    third = begin("json", id="abc", project="p", resume="must", tags=["x"])
    third.finish()
    told = [record.changes() for record in AttemptHistory(RunDirectory(Path(third.dir))).changes()]
    assert told == [{"tags": ["x", "y, z"]}, {"tags": ["x", "y, z", "w"], "group": "g"}]


def test_existing_id_needs_resume() -> None:
    """An id in use is refused with what to do; resume continues it as a new attempt with the next step."""
    first = begin("json", id="abc", project="p", config={"lr": 1, "m": {"d": 2}}, tags=["x"])
    first.log({"a": 1.0}, step=41)
    first.finish()
    with pytest.raises(errors.UsageError, match="resume='allow'"):
        begin("json", id="abc", project="p")
    with pytest.raises(errors.UsageError, match="resume='allow'"):
        begin("json", id="abc", project="p", resume="never")
    with pytest.raises(errors.NotFound, match="no run 'zzz'"):
        begin("json", id="zzz", project="p", resume="must")
    with pytest.raises(errors.UsageError, match="known are allow, must, never, auto"):
        begin("json", id="abc", project="p", resume="maybe")
    second = begin("csv", id="abc", project="p", resume="must", config={"m": {"w": 3}}, tags=["y"])
    assert second.resumed
    assert second.name == first.name
    assert second.config.as_dict() == {"lr": 1, "m": {"d": 2, "w": 3}}
    assert second.tags == ("x", "y")
    second.log({"a": 2.0})
    assert second.step == 42
    second.finish()
    identity = json.loads(Path(second.dir, "run.json").read_text())
    assert [attempt["number"] for attempt in identity["attempts"]] == [1, 2]
    assert identity["trackers"] == ["json", "csv"]


@pytest.mark.parametrize("word", [None, "never", "allow", "must", "auto"])
@pytest.mark.parametrize("given", [{"id": "abc"}, {"name": "same"}], ids=["id", "name"])
def test_rerun_is_a_run_of_its_own(
    given: dict[str, str], word: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Whatever id, name and resume its script gives: nothing is appended to the run that it runs again, which had
    failed; a later start of the rerun itself, in its directory, goes on with it."""
    first = begin("json", project="p", **given)
    first.finish(exit_code=1)
    before = Path(first.dir, "run.json").read_bytes()
    (tmp_path / "again").mkdir()
    monkeypatch.setenv("TRACKER_DIR", str(Path("runs").absolute()))
    monkeypatch.setenv("TRACKERS_RERUN_OF", f"{first.id}.1")
    monkeypatch.chdir(tmp_path / "again")
    second = begin("json", project="p", resume=word if "id" in given or word != "must" else None, **given)
    second.finish(exit_code=1)
    assert second.id != first.id
    assert not second.resumed
    assert Path(first.dir, "run.json").read_bytes() == before
    assert ("run 'abc' stays as it is" in capsys.readouterr().err) is ("id" in given)
    if word == "auto" and "name" in given:
        third = begin("json", project="p", resume=word, **given)
        third.finish()
        assert third.id == second.id


def test_name_template_is_filled_from_the_config() -> None:
    """{model}_{optimizer}_{variant} comes from the configuration, nested or not; an unknown field is named."""
    run = begin("json", name="{model}_{optim.name}", config={"model": "gpt2", "optim": {"name": "adamw"}})
    assert run.name == "gpt2_adamw"
    run.finish()
    with pytest.raises(errors.UsageError, match="modle"):
        begin("json", name="{modle}", config={"model": "gpt2"})


@pytest.mark.slow
def test_automatic_names_follow_the_documented_form(tmp_path: Path) -> None:
    """Project: cwd or model and five hex digits; run: script and time."""
    script = tmp_path / "train.py"
    script.write_text("import trackers\nrun = trackers.init('json', mode='offline')\nprint(run.project, run.name)\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    project, name = done.stdout.split()
    assert __import__("re").fullmatch(r".+-[0-9a-f]{5}", project)
    assert __import__("re").fullmatch(r"train_\d{8}_\d{6}", name)


def test_start_line_names_run_trackers_and_journal(capsys: pytest.CaptureFixture[str]) -> None:
    """One line on stderr, nothing on stdout."""
    run = begin("json", project="digits", name="first")
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err.count("\n") == 1
    assert all(word in out.err for word in ("first", f"digits/{run.id}", "json", "runs/digits", "trackers sync"))
    run.finish()


@pytest.mark.slow
def test_secrets_in_config_argv_and_name_reach_no_file(tmp_path: Path) -> None:
    """Keys by name and known key forms are masked before anything is written."""
    token = "hf_" + "a1B2" * 10
    script = tmp_path / "train.py"
    script.write_text(
        "import trackers\n"
        "run = trackers.init('json', mode='offline', config={'api_key': 'sesame123456', 'url': 'http://u:pw12345678@h/',"
        " 'tokenizer': 'gpt2', 'max_tokens': 5, 'nested': [{'password': 'hunter2222'}]})\n"
    )
    subprocess.run([sys.executable, str(script), "--api-key", "sesame777777", f"--hub={token}"], check=True)
    content = b"".join(path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file())
    for secret in (b"sesame", b"pw12345678", b"hunter2222", token.encode()):
        assert secret not in content
    assert b"gpt2" in content
    assert b'"max_tokens": 5' in content


def test_wrong_keyword_is_named() -> None:
    """A keyword that neither we nor W&B know is a TypeError that names it."""
    with pytest.raises(TypeError, match="projct"):
        trackers.init("json", projct="x")


def test_notebook_display_escapes_everything() -> None:
    """The HTML a run shows holds its name as text."""
    run = begin("json", name="<script>alert(1)</script>")
    html = run._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    run.finish()


@pytest.mark.slow
def test_other_package_of_the_same_name_is_named(tmp_path: Path) -> None:
    """Installed beside ours, the object-tracking package is named with the cure; in our place, the program says so."""
    import shutil

    home = tmp_path / "site"
    shutil.copytree(Path(trackers.__file__).parent, home / "trackers", ignore=shutil.ignore_patterns("__pycache__"))
    info = home / "trackers-2.4.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trackers\nVersion: 2.4.0\n")
    env = {**os.environ, "PYTHONPATH": str(home)}
    code = "import trackers; run = trackers.init('json', mode='offline'); run.finish()"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert "object-tracking package 'trackers' 2.4.0 is installed beside" in done.stderr
    assert "pip uninstall -y trackers" in done.stderr
    (home / "trackers/__init__.py").write_text('__version__ = "2.4.0"\n')
    code = "from trackers.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "took this one's place" in done.stderr
    assert "Traceback" not in done.stderr


def test_start_line_has_the_addresses_outside_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Each tracker that keeps the run elsewhere is named with where; logins in an address are masked."""
    options = {
        "MLFLOW_TRACKING_URI": "http://me:hunter2222@127.0.0.1:9/",
        "TENSORBOARD_DIR": "tb",
        "TRACKER_RELAY": False,
    }
    run = trackers.init("wandb,trackio,tensorboard,mlflow,json", mode="online", options=options)
    (line,) = capsys.readouterr().err.splitlines()
    assert "wandb (offline), trackio (" in line
    assert f"tensorboard ({Path('tb').absolute()}), mlflow (http://me:***@127.0.0.1:9/), json; journal in" in line
    assert run.id in line
    run.finish()


def test_baseline_is_in_every_tracker_by_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """BASELINE_RUN_ID is recorded as baseline_run_id; a configuration that has the key keeps its own."""
    monkeypatch.setenv("BASELINE_RUN_ID", "team/gpt2/v2h4vzbc")
    run = begin("json", config={"lr": 1})
    assert run.config.as_dict() == {"lr": 1, "baseline_run_id": "team/gpt2/v2h4vzbc"}
    stream = Path(run.dir, "streams", "rank-0.1.jsonl").read_text()
    assert '"baseline_run_id":"team/gpt2/v2h4vzbc"' in stream
    run.finish()
    run = begin("json", config={"baseline_run_id": "mine"})
    assert run.config["baseline_run_id"] == "mine"
    run.finish()


def test_config_setdefaults_leaves_what_is_set() -> None:
    """As W&B's: only missing keys are set, and the change is recorded."""
    run = begin("json", config={"lr": 1})
    run.config.setdefaults({"lr": 2, "depth": 3})
    assert run.config.as_dict() == {"lr": 1, "depth": 3}
    assert '"depth":3' in Path(run.dir, "streams", "rank-0.1.jsonl").read_text()
    run.finish()


def test_wrong_flags_of_a_script_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """``init_from_args`` ends as argparse does: one line, exit code 2, no traceback."""
    parser = argparse.ArgumentParser()
    trackers.add_arguments(parser)
    with pytest.raises(SystemExit) as ended:
        trackers.init_from_args(parser.parse_args(["--tracker", "wanbd"]))
    assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "error: unknown tracker 'wanbd': did you mean 'wandb'?" in lines[0]


def test_run_that_must_exist_and_does_not_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """``--tracker-resume must`` without its run is no traceback either."""
    parser = argparse.ArgumentParser()
    trackers.add_arguments(parser)
    for more in ([], ["--tracker-run-id", "gone"]):
        with pytest.raises(SystemExit) as ended:
            trackers.init_from_args(parser.parse_args(["--tracker", "json", "--tracker-resume", "must", *more]))
        assert ended.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "`trackers ls` lists runs" in line


def test_result_without_a_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """``final/`` alone names nothing."""
    run = trackers.init("json", project="p", options={"TRACKER_RELAY": False})
    run.log({"final/": 2, "loss": 1.0})
    run.finish()
    assert "an empty name" in capsys.readouterr().err
    assert not any(
        record["kind"] == "summary"
        for record in map(json.loads, Path(run.dir, "streams/rank-0.1.jsonl").read_text().splitlines())
    )


RIVALS = """
import sys, time, trackers
from pathlib import Path
Path("ready").open("a").write(".")
while not Path("go").exists():
    time.sleep(0.001)
run = trackers.init("json", id="abc", project="p", resume=sys.argv[2] or None, mode="offline", config={sys.argv[1]: 1},
                    tags=[sys.argv[1]], name=sys.argv[1])
run.finish()
"""


def _race(resume: str, count: int) -> list[tuple[int, str]]:
    Path("ready").write_text("")
    Path("go").unlink(missing_ok=True)
    script = ["-c", RIVALS]
    rivals = [
        subprocess.Popen([sys.executable, *script, str(k), resume], stderr=subprocess.PIPE, text=True)
        for k in range(count)
    ]
    while len(Path("ready").read_text()) < count:
        assert all(rival.poll() is None for rival in rivals)
    Path("go").touch()
    return [(rival.returncode, error) for rival in rivals for error in [rival.communicate(timeout=60)[1]]]


@pytest.mark.slow
def test_starts_of_one_run_at_once_are_all_in_its_identity() -> None:
    """Whoever is first of several processes: run.json has each attempt, setting and tag, in order."""
    assert [code for code, _ in _race("allow", 3)] == [0] * 3
    info = json.loads(Path("runs/p/abc/run.json").read_text())
    assert [attempt["number"] for attempt in info["attempts"]] == [1, 2, 3]
    assert len({attempt["pid"] for attempt in info["attempts"]}) == 3
    assert info["config"] == dict.fromkeys("012", 1)
    assert sorted(info["tags"]) == list("012")
    assert not list(Path("runs/p/abc").glob("*.lease"))


def _overtaken(monkeypatch: pytest.MonkeyPatch, **more: Any) -> list[Run]:
    """Have each start that has claimed its stream be overtaken by another whole one, which is given back."""
    open_attempt, rivals, nested = resume.open_attempt, list[Run](), [False]

    def slow(*arguments: Any, **named: Any) -> resume.OpenedAttempt:
        opened = open_attempt(*arguments, **named)
        if not nested[0]:
            nested[0] = True
            rivals.append(begin("json", id="abc", project="p", reinit="create_new", **more))
            nested[0] = False
        return opened

    monkeypatch.setattr(resume, "open_attempt", slow)
    return rivals


@pytest.mark.parametrize("exists", [True, False])
def test_start_that_was_overtaken_loses_no_attempt(monkeypatch: pytest.MonkeyPatch, exists: bool) -> None:
    """What another process wrote to run.json since this one read it stays there."""
    if exists:
        begin("json", id="abc", project="p", config={"z": 0}, tags=["z"]).finish()
    rivals = _overtaken(monkeypatch, resume="allow", config={"b": 2}, tags=["b"])
    run = begin("csv", id="abc", project="p", resume="allow", config={"a": 1}, tags=["a"])
    run.finish()
    rivals[0].finish()
    info = json.loads(Path("runs/p/abc/run.json").read_text())
    assert [attempt["number"] for attempt in info["attempts"]] == [1, 2, 3][: 2 + exists]
    assert info["config"] == {"a": 1, "b": 2, **({"z": 0} if exists else {})}
    assert set(info["tags"]) == {"a", "b"} | ({"z"} if exists else set())
    assert set(info["trackers"]) == {"json", "csv"}
    assert run.start_time != rivals[0].start_time


def test_start_that_was_overtaken_takes_no_other_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody asked to resume, the slower one of two new runs with one id is refused and leaves nothing."""
    _overtaken(monkeypatch)
    with pytest.raises(errors.UsageError, match="run 'abc' exists"):
        begin("json", id="abc", project="p")
    assert [path.name for path in Path("runs/p/abc/streams").glob("*.jsonl")] == ["rank-0.2.jsonl"]
    assert len(json.loads(Path("runs/p/abc/run.json").read_text())["attempts"]) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_workers_run_leaves_its_parents_open(capfd: pytest.CaptureFixture[str]) -> None:
    """A pool's worker that begins a run of its own says nothing of its parent's, which goes on."""
    run = begin("json", project="p", name="parents")
    context = multiprocessing.get_context("fork")
    worker = context.Process(target=_run_of_a_worker)
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0
    assert "finishing run parents" not in capfd.readouterr().err
    assert current() is run
    run.log({"a": 1.0})
    run.finish()
    assert json.loads(Path("runs/p/workers/run.json").read_text())["name"] == "workers"


def _run_of_a_worker() -> None:
    for _ in range(2):
        run = begin("json", project="p", id="workers", name="workers", resume="allow")
        run.log({"b": 1.0})
        assert current() is run
    run.finish()
