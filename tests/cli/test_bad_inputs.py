"""Every command on inputs that are damaged, odd or unreadable: one line each, an exit code, and the others go on."""

from __future__ import annotations

import copy
import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests import ROOT
from tests.analysis.support import T0, write_run
from tests.cli.test_outputs import RESULT, own, script
from trackers import records
from trackers.cli.app import app
from trackers.cli.scripts import (
    compare_results,
    monitor_gpu,
    wandb_runs,
)
from trackers.errors import Unavailable

RESULTS = script("compare_results", compare_results.main)
MONITOR = script("monitor_gpu", monitor_gpu.main)
WANDB = {
    "compare_wandb_runs": script("compare_wandb_runs", wandb_runs.compare),
    "query_wandb_gpu": script("query_wandb_gpu", wandb_runs.history),
    "query_wandb_gpu_full": script("query_wandb_gpu_full", wandb_runs.system),
    "inspect_wandb_keys": script("inspect_wandb_keys", wandb_runs.keys),
}
ROWS = [(step, 2.0 * step, {"train_loss": 3.0 - step / 10}) for step in range(4)]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACKER_DIR", "runs")


def damage(path: Path, how: str, good: bytes = b'{"a": 1}') -> None:
    """Put something wrong in the place of a file."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if how == "directory":
        path.mkdir()
    elif how in LINKS:
        path.symlink_to(LINKS[how] or path.name)
    else:
        path.write_bytes(CONTENTS[how](good))


LINKS = {"dangling": "nowhere", "loop": "", "unreadable": "/proc/self/mem"}
CONTENTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda good: b"",
    "torn": lambda good: good[: len(good) * 2 // 3],
    "binary": lambda good: bytes(range(256)) * 64,
    "NUL": lambda good: b"\0" * 4096,
    "latin-1": lambda good: '{"name": "Köln"}'.encode("latin-1"),
    "UTF-16": lambda good: good.decode("utf-8", "replace").encode("utf-16"),
    "deep": lambda good: b"[" * 100_000 + b"]" * 100_000,
    "number": lambda good: b"17\n",
    "list": lambda good: b"[1, null, {}]\n",
    "long number": lambda good: b'{"training_metrics": [{"step": 1' + b"0" * 5000 + b"}]}",
    "cut gzip": lambda good: gzip.compress(good)[:-10],
}
HOWS = (*CONTENTS, "directory", *LINKS)


def said(program: Callable[[Sequence[str]], int], words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> int:
    """The exit code of a program that complains, if at all, in few, short and harmless lines."""
    capsys.readouterr()
    code = program(words)
    shown = capsys.readouterr()
    assert code in (0, 1, 2)
    assert shown.err or shown.out or not code, words
    assert "Traceback" not in shown.err
    lines = shown.err.splitlines()
    assert len(lines) < 12, shown.err
    assert all(len(line) < 1000 and line.isprintable() for line in lines), shown.err
    return code


@pytest.mark.heavy
@pytest.mark.parametrize("how", HOWS)
def test_damaged_file_among_others_is_left_out(
    how: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results, logs and recordings: what can't be read is named, and the others are shown."""
    monkeypatch.setattr(compare_results, "_plot", lambda found, path: path)
    damage(Path("results/benchmark_b.json"), how, json.dumps(RESULT).encode())
    Path("results/benchmark_a.json").write_text(json.dumps(RESULT))
    assert said(RESULTS, ["--results-dir", "results"], capsys) == 0
    damage(Path("bad"), how)
    assert said(MONITOR, ["--compare", "bad"], capsys) == 1
    for program in WANDB.values():
        assert said(program, ["--offline", "bad"], capsys) == 1


OF_A_RUN = {
    "run.json": ("empty", "torn", "deep", "list", "directory", "unreadable"),
    "streams/rank-0.1.jsonl": ("binary", "directory", "loop", "unreadable"),
    "streams": ("empty", "dangling"),
    "delivery": ("empty", "loop"),
}


@pytest.mark.heavy
@pytest.mark.parametrize(("name", "how"), [(name, how) for name, hows in OF_A_RUN.items() for how in hows])
def test_damaged_run_among_others_is_left_out(name: str, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever of a run is damaged: commands on it say so in a line, and those on several do the others."""
    write_run("good", ROWS)
    path = write_run("bad", ROWS) / name
    damage(path, how, path.read_bytes() if path.is_file() else b"x")
    for words in (["show", "bad"], ["show", "bad", "--rejected"], ["keys", "bad"], ["restore", "bad", "--yes"],
                  ["ls", "--json"]):  # fmt: skip
        said(own(*words), [], capsys)
    for words in (["prune"], ["archive", "--older-than", "0"]):
        assert own(*words)([]) == 0
        assert "good" in capsys.readouterr().out
    assert said(own("ls"), [], capsys) == 0


ODD: list[Any] = [None, True, -1, 10**400, "", "NaN", [], [[]], [None], {}, {"a": None}, "2026-99-99", 1e308]


def odd(document: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, of lists the first."""
    yield place
    inner: Any = document
    for key in place:
        inner = inner[key]
    for key in inner if isinstance(inner, dict) else range(min(1, len(inner))) if isinstance(inner, list) else ():
        yield from odd(document, (*place, key))


def with_odd(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    """The document with another value at a place."""
    changed = copy.deepcopy(document)
    if not place:
        return value
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return changed


@pytest.mark.heavy
def test_result_with_odd_content_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever stands at whatever place of a result, the others are compared, and mostly this one."""
    from trackers.analysis.benchmark_results import results
    from trackers.analysis.report import benchmark_markdown

    Path("results").mkdir()
    Path("results/benchmark_other.json").write_text(json.dumps(RESULT))
    for place in odd(RESULT):
        for value in ODD:
            Path("results/benchmark_one.json").write_text(json.dumps(with_odd(RESULT, place, value)))
            found, lost = results(Path("results"))
            assert len(found) + len(lost) == 2, (place, value)
            assert "other" in benchmark_markdown(found, when="now")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root, to become somebody else")
def test_unreadable_directory_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the operating system refuses is named with its reason."""
    for folder in ("logs", "results", "runs"):
        Path(folder, "inner").mkdir(parents=True)
        Path(folder).chmod(0)
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    os.seteuid(65534)
    try:
        for program, words in ((RESULTS, ["--results-dir", "results"]), (own("ls"), []),
                               (own("prune"), []), (own("prune", "--logs"), ["results"]), (own("keys"), ["latest"]),
                               (MONITOR, ["--compare", "logs/x.json"]),
                               (own("report"), ["runs"]), (WANDB["inspect_wandb_keys"], ["--offline", "logs"]),
                               (own("archive"), ["--backup", "full", "results", "--yes"])):  # fmt: skip
            said(program, words, capsys)
    finally:
        os.seteuid(0)


@pytest.mark.processes
def test_monitor_keeps_the_commands_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """A recording that the command itself spoilt doesn't change its code."""
    for spoilt in ("rm x.json", "echo '{' > x.json"):
        Path("x.json").unlink(missing_ok=True)
        assert MONITOR(["--output", "x.json", "--monitor-training", f"bash -c '{spoilt}; exit 7'"]) == 7
        assert "the summary isn't kept" in capsys.readouterr().err


def test_run_that_a_server_fails_on_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of several W&B runs one that can't be read is named, and the others are compared."""
    from trackers.errors import NotFound
    from trackers.readers.reader import SourceRun

    runs = [SourceRun(source=f"wandb:a/b/{k}", id=str(k), name=f"run {k}") for k in range(3)]
    monkeypatch.setattr(wandb_runs.WandbQuery, "__init__", lambda self, options: None)
    monkeypatch.setattr(wandb_runs.WandbQuery, "newest", lambda self, count: runs)

    def averages(query: object, run: SourceRun, keys: Sequence[str]) -> dict[str, float]:
        if run.id == "1":
            raise NotFound("its history is damaged")
        return {"gpu/compute_util_avg": 50.0}

    monkeypatch.setattr(wandb_runs, "_averages", averages)
    assert WANDB["compare_wandb_runs"](["--project", "b"]) == 1
    shown = capsys.readouterr()
    assert "Run can't be read: run 1 (its history is damaged)" in shown.err
    assert shown.out.count("GPU Compute Util: 50.00%") == 2


def write_results() -> None:
    """A result with a name that ASCII lacks."""
    Path("benchmark_results").mkdir()
    Path("benchmark_results/benchmark_📱.json").write_text(json.dumps(RESULT))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_standard_output_is_one_line() -> None:
    """What can't be printed is said once, without a traceback, and the exit code tells."""
    write_run("good", ROWS)
    write_results()
    for words in (["-m", "trackers", "show", "good"], [str(ROOT / "scripts/compare_results.py")]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([sys.executable, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode != 0
        assert done.stderr.count("\n") == 1, done.stderr
        assert "No space left on device" in done.stderr


@pytest.mark.slow
def test_names_that_a_terminal_has_no_letters_for_are_escaped() -> None:
    """A terminal that knows ASCII alone shows what it can."""
    write_run("good", ROWS, name="Köln 📱 \udcff")
    write_results()
    for words in (["-m", "trackers", "show", "good"], [str(ROOT / "scripts/compare_results.py")]):
        environ = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
        done = subprocess.run([sys.executable, *words], capture_output=True, env=environ, check=False)
        assert done.returncode == 0, done.stderr
        assert b"\\" in done.stdout


@pytest.mark.heavy
def test_directory_that_is_not_utf8_stops_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever may write to a directory of runs can name one as they like: it is listed, queried and copied, too."""
    os.makedirs(b"runs/digits-\xff")
    write_run("good", ROWS)
    path = write_run("odd", ROWS)
    path.rename(os.fsdecode(b"runs/digits-\xff/odd"))
    path = write_run("other", ROWS)
    (path / "streams" / os.fsdecode(b"\xff.jsonl")).touch()
    for one in Path("runs").rglob("*"):  # old enough for what is found out to be kept
        os.utime(one, (1e9, 1e9))
    odd = os.fsdecode(b"runs/digits-\xff/odd")
    for words in (
        ["ls"], ["ls"], ["sql", "select * from runs"], ["sql", "select count(*) as n from metrics", "--format", "csv"],
        ["sql", "select count(*) as n from metrics", "--format", "csv"], ["compare", "good", odd], ["report", odd],
        ["copy", odd, "json:copied"], ["copy", odd, "copies"], ["bench-export", odd, "--output", "results"],
    ):  # fmt: skip
        assert said(own(words[0]), words[1:], capsys) == 0, words
    assert json.loads(next(Path("results").glob("*.json")).read_text())["performance_metrics"]
    assert Path("copied").exists()


def test_server_that_is_away_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What a query can't get is one line, an exit code, and no traceback."""

    def away(self: object, options: object) -> None:
        raise Unavailable("no answer from https://api.wandb.ai for 30 s")

    monkeypatch.setattr("trackers.cli.scripts.wandb_runs.WandbQuery.__init__", away)
    for program in WANDB.values():
        assert said(program, ["--project", "b"], capsys) == 2


LINES = {
    "alert": {"title": "odd", "text": "odd"}, "metrics": {"values": {"odd": 1.0}}, "text": {"values": {"odd": "x"}},
    "span": {"name": "odd", "trace": "1" * 32, "span": "2" * 16, "began": 1.0}, "finish": {"status": "failed"},
    "summary": {"values": {"final/odd": 1.0}}, "media": {"name": "odd", "type": "html", "items": [{"format": "html"}]},
    "artifact": {"name": "odd", "files": [{"path": "x", "size": 10**400}]}, "info": {"name": "odd", "undoes": 1e300},
    "start": {"rank": 0, "pid_start": 1e300}, "console": {"lines": ["odd"], "left_out": 10**400},
}  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("odd", [{"time": 1e300}, {"time": "NaN"}, {"time": 5.0, "step": 10**400}])
@pytest.mark.parametrize("kind", LINES)
def test_one_odd_record_hides_no_other(kind: str, odd: dict[str, Any]) -> None:
    """A time that no calendar knows, a step beyond 64 bits: the run's other records are shown by each command."""
    more = [records.Alert(time=T0, title="seen", text="good"), records.Text(time=T0, values={"said": "good"})]
    stream = write_run("one", ROWS, more=more) / "streams/rank-0.1.jsonl"
    line = json.dumps({"kind": kind, "time": 5.0, **LINES[kind], **odd}).encode() + b"\n"
    lines = stream.read_bytes().splitlines(keepends=True)
    stream.write_bytes(b"".join([*lines[:2], line, *lines[2:]]))
    for words, wanted in {
        ("alerts", "one"): "good", ("show", "one"): "2.7", ("ls",): "one", ("keys", "one"): "train_loss",
        ("alerts", "one", "--json"): "good", ("show", "one", "--json"): "2.7", ("ls", "--json"): "2.7",
        ("files", "one"): "said", ("sql", "select max(step) as s from metrics", "one"): "3",
    }.items():  # fmt: skip
        done = CliRunner().invoke(app, list(words), catch_exceptions=False)
        assert wanted in done.stdout, (words, done.output)
