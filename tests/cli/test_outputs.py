"""Every command that writes a file where people say: whole or not at all, and over nothing that would be missed."""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

import trackers
from tests import LOGS
from tests.analysis.support import T0, write_run
from trackers.cli import main as trackers_main
from trackers.cli.app import app
from trackers.cli.scripts import compare_results, monitor_gpu
from trackers.cli.scripts import run as run_script
from trackers.records import Media, MediaFile

LOG = LOGS / "primus-excerpt.log"
RESULT = {
    "platform": "rocm",
    "timestamp": "2026-01-05T11:29:06",
    "training_config": {"global_batch_size": 128, "sequence_length": 2048, "num_gpus": 8},
    "performance_metrics": {"total_steps": 10, "avg_step_time_seconds": 9.754},
    "raw_step_times": [9.836, 9.702, 9.699, 9.75, 9.783],
}

INPUTS: dict[str, Any] = {"results/benchmark_a.json": RESULT}
"""What commands read, beside runs and logs; a plug-in's tests add theirs."""


def own(*words: str) -> Callable[[Sequence[str]], int]:
    """A command of ``trackers``."""

    def program(more: Sequence[str]) -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["trackers", *words, *more])
            return ended(trackers_main)

    return program


def script(name: str, work: Callable[[Sequence[str]], int]) -> Callable[[Sequence[str]], int]:
    """A program of ``scripts/``."""

    def program(more: Sequence[str]) -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [name, *more])
            return ended(lambda: run_script(name, work))

    return program


def ended(program: Callable[[], object]) -> int:
    """A program's exit code."""
    try:
        program()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


class Command(NamedTuple):
    """program: a command. arguments: with ``{}`` for the output. output: its name. reads: what it is made from.

    again: what becomes of an output of its own, of the same inputs: "replaced", or "kept". forced: it has --force.
    option: the name of the option, as its parser calls it.
    """

    program: Callable[[Sequence[str]], int]
    arguments: tuple[str, ...]
    output: str
    reads: str
    again: str = "replaced"
    forced: bool = True
    option: str = "output"


COMMANDS = {
    "plot png": Command(own("plot"), ("json/log.json", "-o", "{}"), "x.png", "json/log.json"),
    "plot svg": Command(own("plot"), ("run:one", "-o", "{}"), "x.svg", "runs/digits/one/run.json"),
    "plot pdf": Command(own("plot"), ("latest", "-o", "{}"), "x.pdf", "runs/digits/one/streams/rank-0.1.jsonl"),
    "plot html": Command(own("plot"), ("json:json/*.json", "-o", "{}"), "x.html", "json/log.json"),
    "report md": Command(own("report"), ("json/log.json", "one", "-o", "{}"), "x.md", "json/log.json"),
    "report html": Command(own("report"), ("one", "-o", "{}"), "x.html", "runs/digits/one/run.json"),
    "bench-export": Command(own("bench-export"), ("json:json", "-o", "{}"), "x.json", "json/log.json"),
    "archive --backup": Command(
        own("archive"), ("--backup", "full", "results", "--yes", "-o", "{}"), "x.tar.gz",
        "results/benchmark_a.json", "kept", False,
    ),
    "tables": Command(own("tables"), ("one", "t", "-o", "{}"), "x.csv", "runs/digits/one/run.json", "kept"),
    "tables diff": Command(
        own("tables"), ("diff", "one", "one", "t", "-o", "{}"), "x.parquet", "runs/digits/one/run.json", "kept",
    ),
    "tables join": Command(
        own("tables"), ("join", "one", "latest", "t", "-o", "{}"), "x.json", "runs/digits/one/run.json", "kept",
    ),
    "savedefconfig": Command(own("savedefconfig"), ("{}",), "x", ".config", option="path"),
    "compare_results report": Command(
        script("compare_results", compare_results.main), ("--results-dir", "results", "--output-report", "{}"),
        "x.md", "results/benchmark_a.json", option="output_report",
    ),
    "compare_results plot": Command(
        script("compare_results", compare_results.main), ("--results-dir", "results", "--output-plot", "{}"),
        "x.png", "results/benchmark_a.json", option="output_plot",
    ),
    "monitor_gpu": Command(
        script("monitor_gpu", monitor_gpu.main), ("--snapshot", "--output", "{}"), "x.json", "", "kept",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What every command reads."""
    place = tmp_path_factory.mktemp("inputs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        rows = [(k, 2.0 * k, {"train_loss": 3.0 - k / 10, "perf/iter_time_sec": 2.0}) for k in range(8)]
        item = MediaFile(format="json", data={"columns": ["a"], "rows": [[1]]})
        table = Media(name="t", type="table", items=[item], time=T0)
        write_run("one", rows, config={"global_batch_size": 8}, more=[table])
        log = trackers.init("json", project="p", dir="other", inline=True, options={"JSON_DIR": "json"})
        for _, _, values in rows:
            log.log(values)
        log.finish()
    (made,) = (place / "json").iterdir()
    made.rename(place / "json/log.json")
    shutil.copy(LOG, place / "a.log")
    for name, content in INPUTS.items():
        (place / name).parent.mkdir(exist_ok=True, parents=True)
        (place / name).write_text(json.dumps(content))
    (place / ".config").write_text('CONFIG_TRACKER="csv"\n')
    return place


@pytest.fixture
def here(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "here"
    shutil.copytree(prepared, place, symlinks=True)
    monkeypatch.chdir(place)
    monkeypatch.setenv("TRACKER_DIR", "runs")
    return place


def run(command: Command, *more: str, output: str = "") -> int:
    """The command, with another output where one is named."""
    return command.program([*(word.replace("{}", output or command.output) for word in command.arguments), *more])


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if "WARNING" not in line and "left out" not in line]
    assert "Traceback" not in error
    return lines[-1]


def temporary() -> list[Path]:
    return [path for path in Path().rglob("*") if path.name.endswith((".tmp", ".part"))]


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_output_is_replaced_by_its_own_kind_alone(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is made; made again, it is replaced or kept; what is not a command's own stays, unless forced."""
    command, path = COMMANDS[name], Path(COMMANDS[name].output)
    assert run(command) == 0, capsys.readouterr().err
    made = path.read_bytes()
    assert made
    path.chmod(0o640)
    code = run(command)
    if command.again == "replaced":
        assert code == 0, capsys.readouterr().err
        assert path.stat().st_mode & 0o777 == 0o640
    else:
        assert code == 2
        assert "stays" in one_line(capsys)
        assert path.read_bytes() == made
    path.write_text("# my thesis\n\nof many years\n")
    if command.arguments[-1] == "{}":
        assert run(command) == 2
        assert path.name in one_line(capsys)
        assert path.read_text() == "# my thesis\n\nof many years\n"
    if command.forced:
        assert run(command, "--force") == 0
        assert path.read_bytes() != b"# my thesis\n\nof many years\n"
    path.unlink()
    path.touch()  # as mktemp makes it
    assert run(command) == (0 if command.forced or command.again != "kept" else 2)
    assert not temporary()


@pytest.mark.parametrize("name", [name for name in COMMANDS if COMMANDS[name].reads])
@pytest.mark.parametrize("how", ["itself", "link", "hard link"])
def test_output_is_never_an_input(name: str, how: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Under its own name or through a link of any kind, forced or not, what is read stays as it was."""
    command = COMMANDS[name]
    read, output = Path(command.reads), Path(command.output)
    if how == "link":
        output.symlink_to(read.resolve())
    elif how == "hard link":
        os.link(read, output)
    elif command.arguments[-1] != "{}" or (read.suffix != output.suffix and name.startswith(("plot", "report"))):
        return  # its output's name can't be the input's
    before = read.read_bytes()
    for more in ([], ["--force"] if command.forced else []):
        assert run(command, *more, output=str(read) if how == "itself" else "") == 2
        assert one_line(capsys)
        assert read.read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind in ("link", "folder", "pipe")
        for name, command in COMMANDS.items()
        if kind != "folder" or command.arguments[-1] == "{}"  # else its folder is what it reads
    ],
)
def test_what_another_account_put_in_its_place_is_not_written_to(
    kind: str, name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder that others can write to, a link of theirs makes no file of ours elsewhere, nor does one in the place
    of a folder; a pipe of theirs isn't waited for. Nothing but the sticky bit has the system refuse the first."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("needs root: a link of another account")
    command, place = COMMANDS[name], Path(COMMANDS[name].output)
    victim = here / "victim"
    victim.mkdir()
    planted = Path("shared") if kind == "folder" else place
    if kind == "pipe":
        os.mkfifo(planted)
    else:
        planted.symlink_to(victim if kind == "folder" else victim / place.name)
    os.chown(planted, 65534, 65534, follow_symlinks=False)
    assert run(command, output=f"shared/{place}" if kind == "folder" else "") == 2
    assert "another account's" in one_line(capsys)
    assert not list(victim.iterdir())


@pytest.mark.parametrize("place", ["shared", "shared/new", "shared/new/deeper"])
@pytest.mark.parametrize("scheme", ["", "json:", "csv:", "tb:"])
def test_copy_leaves_nothing_behind_another_accounts_link(
    scheme: str, place: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a copy nor an empty directory."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("needs root: a link of another account")
    (victim := here / "victim").mkdir()
    Path("shared").symlink_to(victim)
    os.chown("shared", 65534, 65534, follow_symlinks=False)
    assert own("copy", "one")([f"{scheme}{place}"]) == 2
    assert "another account's" in one_line(capsys)
    assert not list(victim.iterdir())


@pytest.mark.parametrize("place", ["shared", "shared/new"])
@pytest.mark.parametrize("words", [("get", "one", "t", "-o"), ("ui", "one", "--export"), ("bench-export", "one", "-o")])
def test_folder_that_another_account_put_there_is_not_filled(
    words: tuple[str, ...], place: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the output is a folder, neither it nor one above it is another account's link to one of ours."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("needs root: a link of another account")
    victim = here / "victim"
    victim.mkdir()
    Path("shared").symlink_to(victim)
    os.chown("shared", 65534, 65534, follow_symlinks=False)
    assert own(*words)([place]) == 2
    assert "another account's" in one_line(capsys)
    assert not list(victim.iterdir())


@pytest.fixture
def full() -> Iterator[Callable[[], None]]:
    """Files get no longer than a byte from the call on, as on a disk that fills."""
    if "wandb" in sys.modules:  # its service's threads, of another test, write, too
        sys.modules["wandb"].teardown()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", COMMANDS)
def test_full_disk_leaves_what_was_there(
    name: str, here: Path, full: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, an exit code, the old file, and no part of a new one."""
    command, path = COMMANDS[name], Path(COMMANDS[name].output)
    before = None
    if command.again == "replaced":
        assert run(command) == 0, capsys.readouterr().err
        before = path.read_bytes()
    capsys.readouterr()
    full()
    code = run(command)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert code in (1, 2)
    assert "can't be written" in one_line(capsys) or name == "archive --backup"
    assert (path.read_bytes() if path.exists() else None) in (before, *([b""] if name == "monitor_gpu" else []))
    assert not temporary()


@pytest.mark.parametrize("name", [name for name in COMMANDS if COMMANDS[name].arguments[-1] == "{}"])
def test_output_is_a_directory_or_below_a_file(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line each; a link to a file is followed, and stays."""
    command, path = COMMANDS[name], Path(COMMANDS[name].output)
    path.mkdir()
    if name not in ("bench-export", "extract_primus_metrics"):  # there a directory is an answer
        assert run(command) in (1, 2)
        assert path.name in one_line(capsys)
    path.rmdir()
    assert run(command, output=f"a.log/{path.name}") in (1, 2)
    assert "a.log" in one_line(capsys)
    Path("elsewhere").mkdir()
    path.symlink_to(Path("elsewhere", path.name))
    assert run(command) == 0, capsys.readouterr().err
    assert path.is_symlink()
    assert Path("elsewhere", path.name).read_bytes()


@pytest.mark.slow
def test_every_output_is_tried_here() -> None:
    """Whatever option of any command names a file to write, it stands in the table above."""
    words = ("output", "report", "plot")
    found = set()
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        found |= {name for parameter in command.params if parameter.name in words}
    tables: dict[str, argparse.ArgumentParser] = {
        "compare_results": compare_results._parser(),
        "monitor_gpu": monitor_gpu.parser(),
    }  # fmt: skip
    for name, parser in tables.items():
        found |= {name for action in parser._actions if any(word in action.dest for word in words)}
    assert found - {name.split()[0] for name in COMMANDS} == {"get"}  # in tests/analysis/test_run_files.py


def test_recordings_of_one_second_have_a_file_each(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two machines that begin to record in one directory at once don't write over each other."""
    names = {monitor_gpu._unused("gpu_monitor_20260101_000000") for _ in range(3)}
    assert {path.name for path in names} == {f"gpu_monitor_20260101_000000{end}.json" for end in ("", "_2", "_3")}


def test_bad_command_is_refused_before_anything_is_recorded(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A command that can't be split makes no file, and costs none that was there."""
    Path("x.json").write_text("{}")
    for words in (["--monitor-training", "python 'train.py"], ["--monitor-training", ""]):
        assert script("monitor_gpu", monitor_gpu.main)([*words, "--output", "x.json", "--force"]) == 2
        assert script("monitor_gpu", monitor_gpu.main)(words) == 2
    assert Path("x.json").read_text() == "{}"
    assert not list(Path().glob("gpu_monitor*"))
    assert "can't be split" in capsys.readouterr().err


def test_config_keeps_the_one_before(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """.config is replaced whole, the earlier one lies beside it, and nothing changes where nothing does."""
    assert own("olddefconfig")([]) == 0
    assert Path(".config.old").read_text() == 'CONFIG_TRACKER="csv"\n'
    Path(".config.old").unlink()
    assert own("olddefconfig")([]) == 0
    assert "No change to .config" in capsys.readouterr().out
    assert not Path(".config.old").exists()


def test_input_through_any_description(here: Path, tmp_path: Path) -> None:
    """Patterns, schemes, directories and the user's home are looked through for what is an output's file, too."""
    from trackers.errors import UsageError
    from trackers.support.atomic_write import check

    target = Path("json/log.json")
    patterns: list[Any] = ["json:json/*.json", "json", "json:json", "**/*.json", str(target.resolve()), target]
    for given in patterns:
        with pytest.raises(UsageError, match="one of the files that are read"):
            check(target, inputs=[given], force=True)
    check(target, inputs=["results", "json:results/*"], force=True)
