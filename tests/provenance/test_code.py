"""What exactly ran: recorded by a real run, beside it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import sys
import tracemalloc
import types
import zipfile
from pathlib import Path
from unittest import mock

import msgspec
import pytest

from tests import ROOT, forked
from tests.faults.disks import fill, free, small_disk
from tests.helpers import run_info, wait_for
from tests.provenance.support import git, record, repository
from trackers.errors import Damaged
from trackers.journal import helper_process
from trackers.journal.run_directory import RunDirectory, run_paths
from trackers.provenance import manifest, modules, paths, snapshot, surroundings
from trackers.provenance.data import Digests, Stopped
from trackers.provenance.modules import Module
from trackers.provenance.packages import Origin, origin
from trackers.relay import code_keeper
from trackers.relay.code_keeper import UNREAD, CaptureTask, CodeKeeper, keep
from trackers.relay.parts.part import Beside, RelayMoment
from trackers.training import imported_code

__all__ = ["small_disk"]

SCRIPT = """
import sys, trackers
from pkg import first
options = {"TRACKER_CODE": False} if "--off" in sys.argv else {"TRACKER_DATA": "notes.txt"}
run = trackers.init("json", project="p", id="one", options=options)
import pkg.second
run.log({"loss": 1.0})
run.finish(timeout=60)
"""


def run_script(place: Path, *arguments: str) -> RunDirectory:
    """A training in a repository; waits until its relay has ended."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NCCL_ALGO": "Ring", "NCCL_SECRET_TOKEN": "abcdef"}
    done = forked.run([sys.executable, "-u", "train.py", *arguments], preload=forked.HELPERS, cwd=place, env=env)
    assert done.returncode == 0, done.stderr
    (path,) = run_paths(place / "runs")
    wait_for(lambda: not list(Path(path).glob("code-*.modules")))
    return RunDirectory(path)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A repository with a changed and an untracked file."""
    root = repository(
        tmp_path / "work", {"train.py": SCRIPT, "pkg/__init__.py": "", "pkg/first.py": "", "unused.py": ""}
    )
    (root / "pkg/first.py").write_text("token = 'abcdefgh12345678'\nx = 1\n")
    (root / "pkg/second.py").write_text("y = 2\n")
    (root / "notes.txt").write_text("untracked\n")
    return root


@pytest.mark.slow
def test_run_records_what_ran(work: Path) -> None:
    """Imported files, those imported after init too, what isn't committed, the command; masked, and private."""
    run = run_script(work, "--lr", "1")
    found = manifest.read(run)
    assert manifest.is_own(found)
    files = {file.path: file for file in found.files}
    assert {path: (file.origin, file.kept) for path, file in files.items()} == {
        "train.py": ("imported", True), "pkg/__init__.py": ("imported", True), "pkg/first.py": ("changed", True),
        "pkg/second.py": ("imported", True),
    }  # fmt: skip
    archive = manifest.Archive(run, found)
    assert archive.read(files["pkg/second.py"]) == b"y = 2\n"
    assert archive.read(files["pkg/first.py"]) == b"token = '***'\nx = 1\n"
    assert files["pkg/first.py"].masked == [1]
    assert (found.program, found.argv, found.flags) == (str(work / "train.py"), ["--lr", "1"], ["-u"])
    assert found.git["commit"] == git(work, "rev-parse", "HEAD").strip()
    assert found.untracked == ["notes.txt"]
    assert found.variables["NCCL_ALGO"] == "Ring"
    assert "NCCL_SECRET_TOKEN" not in found.variables
    assert [(file.path, file.bytes) for file in found.data] == [(str(work / "notes.txt"), 10)]
    assert {path.name: path.stat().st_mode & 0o777 for path in run.path.glob("code-*")} == {
        "code-1.json": 0o600, "code-1.zip": 0o600,
    }  # fmt: skip


def test_code_is_not_recorded_where_nobody_wants_it(work: Path) -> None:
    """TRACKER_CODE=n leaves nothing."""
    assert not list(run_script(work, "--off").path.glob("code-*"))


def test_untracked_files_by_option_and_no_more_than_there_is_room_for(work: Path, tmp_path: Path) -> None:
    """TRACKER_CODE_UNTRACKED takes files, names and folders; what is too large is named, with the reason."""
    (work / "conf").mkdir()
    (work / "conf/a.yaml").write_text("a: 1\n")
    (work / "large.bin").write_bytes(b"x" * 1_100_000)
    options = {"TRACKER_CODE_UNTRACKED": "*.txt, conf, large.bin", "TRACKER_CODE_MAX_MB": 1}
    found = manifest.read(record(work, where=tmp_path / "runs", options=options))
    files = {file.path: file for file in found.files}
    assert {path for path, file in files.items() if file.origin == "untracked" and file.kept} == {
        "notes.txt", "conf/a.yaml",
    }  # fmt: skip
    assert "TRACKER_CODE_MAX_MB" in files["large.bin"].why
    assert found.untracked == ["pkg/second.py"]


def test_changes_in_submodules_are_kept(tmp_path: Path) -> None:
    """A submodule's changed file, and the commit that is checked out there, which isn't the one that is recorded."""
    repository(tmp_path / "inner", {"model.py": "a = 1\n"})
    root = repository(tmp_path / "work", {"train.py": ""})
    git(root, "submodule", "-q", "add", str(tmp_path / "inner"), "part")
    git(root, "commit", "-qm", "second")
    (root / "part/other.py").write_text("")
    git(root / "part", "add", ".")
    git(root / "part", "commit", "-qm", "further")
    (root / "part/model.py").write_text("a = 2\n")
    found = manifest.read(record(root, where=tmp_path / "runs"))
    assert found.submodules == {"part": git(root / "part", "rev-parse", "HEAD").strip()}
    assert [file.path for file in found.files if file.origin == "changed"] == ["part/model.py"]
    found = manifest.read(record(root, "two", where=tmp_path / "runs", options={"TRACKER_CODE_SUBMODULES": False}))
    assert [file.path for file in found.files if file.origin == "changed"] == []


def test_file_that_was_changed_after_its_import_is_named(tmp_path: Path) -> None:
    """What is kept then isn't what ran."""
    (tmp_path / "part.py").write_text("a = 1\n")
    taken = snapshot.take(
        str(tmp_path), [Module("part", str(tmp_path / "part.py"), 6, 1)], "", False, snapshot.SnapshotOptions()
    )
    (file,) = taken.files
    assert (file.kept, file.why) == (True, "it was changed after it was imported")


def test_own_modules_are_those_below_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages without a file of their own count; installed ones don't, nor what imports itself when it is asked."""

    class Late(types.ModuleType):
        def __getattr__(self, name: str) -> object:
            raise AssertionError("asked")

    loaded: dict[str, types.ModuleType] = {}
    monkeypatch.setattr(imported_code, "sys", types.SimpleNamespace(modules=loaded, prefix="/v", base_prefix="/b"))
    for name, file in (
        ("one", "one.py"), ("two", None), ("two.three", "lib/two/three.py"), ("four", ".venv/lib/site-packages/f.py"),
    ):  # fmt: skip
        module = types.ModuleType(name)
        if file is None:
            module.__path__ = [str(tmp_path / "lib/two")]
        else:
            module.__file__ = str(tmp_path / file)
        loaded[name] = module
    loaded["five"] = Late("five")
    found = imported_code.own_modules(str(tmp_path))
    assert [name for name, _ in found] == ["one", "two.three"]
    paths = [modules.import_path(Module(*pair), str(tmp_path)) for pair in found]
    assert paths == [".", "lib"]


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (["train.py", "-u"], []),
        (["-u", "-X", "dev", "-Wignore::mod.c", "train.py", "-O"], ["-u", "-X", "dev", "-Wignore::mod.c"]),
        (["-O", "-m", "pkg", "-u"], ["-O"]),
        (["-um", "pkg"], ["-u"]),
        (["-c", "print()"], []),
        (["-"], []),
    ],
)
def test_flags_of_the_interpreter(words: list[str], flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands before the program, and nothing behind it."""
    monkeypatch.setattr(sys, "orig_argv", ["python", *words])
    assert imported_code.interpreter_flags() == flags


@pytest.mark.parametrize(
    ("program", "cwd", "git_root", "root"),
    [
        ("/p/a/train.py", "/p", "/p/a", "/p/a"),
        ("/p/a/train.py", "/p", "", "/p"),
        ("/p/a/train.py", "/q", "", "/p/a"),
        ("-m pkg", "/q", "", "/q"),
        ("/p/train.py", "/", "", "/p"),
        ("/venv/bin/train", "/q", "", "/q"),
        ("<notebook>", "/", "", ""),
    ],
)
def test_own_root(program: str, cwd: str, git_root: str, root: str) -> None:
    """The repository, else the working directory, if the script lies there, else the script's directory."""
    assert paths.own_root(program, cwd, git_root, "/venv") == root


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"url": "https://u:p@git/x", "vcs_info": {"vcs": "git", "commit_id": "%s"}}' % ("a" * 40),
         Origin("vcs", "https://u:***@git/x", vcs="git", commit="a" * 40)),
        ('{"url": "file:///p", "dir_info": {"editable": true}}', Origin("editable", "file:///p")),
        ('{"url": "file:///p", "dir_info": {}}', Origin("directory", "file:///p")),
        ('{"url": "https://h/w.whl", "archive_info": {"hashes": {"sha256": "ab"}}}',
         Origin("archive", "https://h/w.whl", hash="sha256:ab")),
        ('{"url": "https://h/w.whl", "archive_info": {"hash": "sha256=ab"}}',
         Origin("archive", "https://h/w.whl", hash="sha256:ab")),
        ("[]", None), ("{", None), ('{"url": 5}', None), ('{"url": "x"}', None),
    ],
)  # fmt: skip
def test_origin_of_a_package(text: str, found: Origin | None) -> None:
    """As installers record it; logins are masked; what is no such record is none."""
    assert origin(text) == found


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["python", "/venv/bin/torchrun", "--nproc_per_node=2", "train.py", "-x"],
         ["-m", "torch.distributed.run", "--nproc_per_node=2", "train.py", "-x"]),
        (["python", "-u", "-m", "torch.distributed.run", "train.py"], ["-m", "torch.distributed.run", "train.py"]),
        (["accelerate", "launch", "train.py"], ["-m", "accelerate.commands.accelerate_cli", "launch", "train.py"]),
        (["bash", "train.sh"], []), (["slurmstepd: [1.0]"], []), ([], []), (["python"], []),
    ],
)  # fmt: skip
def test_launcher_by_its_command_line(words: list[str], found: list[str]) -> None:
    """Those that start all ranks of a machine by one command are known."""
    assert surroundings.command(words) == found


@pytest.mark.parametrize(
    ("environ", "files", "found"),
    [
        ({}, {}, {}),
        ({"APPTAINER_CONTAINER": "/i/torch.sif"}, {}, {"kind": "apptainer", "image": "/i/torch.sif"}),
        ({}, {".dockerenv": ""}, {"kind": "docker", "image": ""}),
        ({"TRACKER_CONTAINER": "img:1"}, {".dockerenv": ""}, {"kind": "docker", "image": "img:1"}),
        ({}, {"run/.containerenv": 'engine="podman-4"\nimage="docker.io/x:2"\n'},
         {"kind": "podman", "image": "docker.io/x:2"}),
    ],
)  # fmt: skip
def test_container(environ: dict[str, str], files: dict[str, str], found: dict[str, str], tmp_path: Path) -> None:
    """As each runtime says it."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert surroundings.container(environ, tmp_path) == found


def test_record_goes_on_where_an_earlier_process_ended(tmp_path: Path) -> None:
    """What was imported since is added, by the next process of the same relay or of another; who began it stays."""
    (tmp_path / "train.py").write_text("")
    run = record(tmp_path, where=tmp_path / "runs")
    first = manifest.read(run)
    (tmp_path / "later.py").write_text("")
    (run.path / "code-1.modules").write_bytes(
        msgspec.json.encode(modules.Head(str(tmp_path)))
        + b"\n"
        + modules.lines([Module("later", str(tmp_path / "later.py"), 0, 1)])
    )
    assert keep(run, CaptureTask(1, os.getppid())) == 0
    found = manifest.read(run)
    assert manifest.is_own(found)
    assert found.time == first.time
    assert [file.path for file in found.files] == ["later.py", "train.py"]


def test_what_was_kept_first_stays(tmp_path: Path) -> None:
    """A file that is edited while training runs is kept as it was, though a module that is imported later is added."""
    root = repository(tmp_path / "work", {"train.py": "a = 1\n", "part.py": "b = 1\n", "conf.yaml": "c: 1\n"})
    (root / "part.py").write_text("b = 2\n")
    run = record(root, modules={"part": "part.py"}, where=tmp_path / "runs")
    first = manifest.read(run)
    for name in ("train.py", "part.py", "conf.yaml", "later.py", "untracked.py"):
        (root / name).write_text("edited = 1\n")
    spool = run.path / "code-1.modules"
    told = [Module(name, str(root / f"{name}.py"), 7, 1) for name in ("train", "part")]
    seen = (root / "later.py").stat()
    told.append(Module("later", str(root / "later.py"), seen.st_size, seen.st_mtime_ns))
    spool.write_bytes(msgspec.json.encode(modules.Head(str(root))) + b"\n" + modules.lines(told))
    assert keep(run, CaptureTask(1, os.getppid())) == 0
    found = manifest.read(run)
    assert [file for file in found.files if file.path != "later.py"] == first.files
    archive = manifest.Archive(run, found)
    assert {file.path: archive.read(file) for file in found.files} == {
        "train.py": b"a = 1\n", "part.py": b"b = 2\n", "later.py": b"edited = 1\n",
    }  # fmt: skip
    assert found.untracked == first.untracked == []


def test_record_whose_archive_is_gone_is_taken_anew(tmp_path: Path) -> None:
    """What can't be read any more doesn't stand in the record as kept."""
    (tmp_path / "train.py").write_text("a = 1\n")
    run = record(tmp_path, where=tmp_path / "runs")
    (run.path / "code-1.zip").unlink()
    (run.path / "code-1.modules").write_bytes(msgspec.json.encode(modules.Head(str(tmp_path))) + b"\n")
    assert keep(run, CaptureTask(1, os.getppid())) == 0
    found = manifest.read(run)
    assert [manifest.Archive(run, found).read(file) for file in found.files] == [b"a = 1\n"]


@pytest.mark.parametrize("way", ["TRACKER_INLINE=y", "TRACKER_RELAY=n"])
def test_run_without_a_relay_keeps_its_code(way: str, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training does it: before the first step, and at the end what was imported meanwhile, and data."""
    monkeypatch.setenv(*way.split("="))
    run = run_script(work)
    found = manifest.read(run)
    assert manifest.is_own(found)
    assert [(file.path, file.origin, file.kept, file.why) for file in found.files] == [
        ("pkg/__init__.py", "imported", True, ""), ("pkg/first.py", "changed", True, ""),
        ("pkg/second.py", "imported", True, ""), ("train.py", "imported", True, ""),
    ]  # fmt: skip
    assert [(file.path, file.bytes) for file in found.data] == [(str(work / "notes.txt"), 10)]
    assert found.notes == []
    assert not list(run.path.glob("*.lease"))


def test_data_is_recorded_by_its_content(tmp_path: Path) -> None:
    """Files, patterns and directories from the working directory; what isn't there is said; twice it isn't read."""
    work = tmp_path / "work"
    (work / "data/deep").mkdir(parents=True)
    for name in ("a.bin", "data/b.bin", "data/deep/c.bin"):
        (work / name).write_text(name)
        os.utime(work / name, (1, 1))
    found = manifest.read(record(work, where=tmp_path / "runs", options={"TRACKER_DATA": "*.bin, data, gone"}))
    told = {os.path.relpath(one.path, work): one.digest or one.why for one in found.data}
    assert told == {
        **{name: hashlib.sha256(name.encode()).hexdigest() for name in ("a.bin", "data/b.bin", "data/deep/c.bin")},
        "gone": "No such file or directory",
    }
    assert found.notes == []
    again = Digests(lambda: False)
    assert again.describe(str(work / "a.bin")).digest == told["a.bin"]
    (work / "a.bin").write_text("other")
    with pytest.raises(Stopped):
        again.describe(str(work / "a.bin"))


def test_data_that_nobody_waits_for_is_not_read(tmp_path: Path) -> None:
    """Where the relay is gone the reading ends, and the record says so."""
    (tmp_path / "train.py").write_text("")
    (tmp_path / "a.bin").write_text("a")
    run = record(tmp_path, where=tmp_path / "runs")
    info = run.read_info()
    info.options["TRACKER_DATA"] = "a.bin"
    run.write_info(info)
    keep(run, CaptureTask(1, 1))
    found = manifest.read(run)
    assert (found.data, found.notes) == ([], [UNREAD])


def test_process_that_keeps_dying_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started three times; what training told stays, for another relay."""
    (tmp_path / "train.py").write_text("")
    run = record(tmp_path, where=tmp_path / "runs")
    spool = run.path / "code-1.modules"
    spool.touch()
    said: list[str] = []
    keeper = CodeKeeper(Beside(run, run.read_info(), 1, lambda text, _: said.append(text)))
    monkeypatch.setattr(helper_process, "start", lambda *_, **__: types.SimpleNamespace(poll=lambda: -9))
    keeper.begin()
    for _ in range(10):
        keeper.poll(RelayMoment("over"))
    assert keeper.idle
    assert len(said) == 1
    assert "signal 9" in said[0]
    keeper.close()
    assert spool.exists()


def test_data_that_is_no_file_is_not_read(tmp_path: Path) -> None:
    """A pipe would keep its reader waiting for ever."""
    os.mkfifo(tmp_path / "pipe")
    assert Digests().describe(str(tmp_path / "pipe")).why == "it is no regular file"


def test_runs_of_a_sweep_share_their_code(tmp_path: Path) -> None:
    """The same archive is there once, as hard links; a private one isn't shared with one that others may read."""
    (tmp_path / "train.py").write_text("")
    (tmp_path / "part.py").write_text("a = 1\n")
    runs = [record(tmp_path, name, modules={"part": "part.py"}, where=tmp_path / "runs") for name in ("one", "two")]
    options = {"TRACKER_PRIVATE": False, "TRACKER_SHARE": "umask"}
    runs.append(record(tmp_path, "open", modules={"part": "part.py"}, where=tmp_path / "runs", options=options))
    (tmp_path / "part.py").write_text("a = 2\n")
    runs.append(record(tmp_path, "changed", modules={"part": "part.py"}, where=tmp_path / "runs"))
    shared = {"TRACKER_SHARE": "umask"}  # the archive stays its owner's
    runs.append(record(tmp_path, "shared", modules={"part": "part.py"}, where=tmp_path / "runs", options=shared))
    seen = [(run.path / "code-1.zip").stat() for run in runs]
    assert len({one.st_ino for one in seen}) == 3
    assert seen[0].st_ino == seen[1].st_ino
    assert [one.st_mode & 0o777 for one in seen] == [0o600, 0o600, 0o644, 0o600, 0o600]
    shutil.rmtree(runs[0].path)
    found = manifest.read(runs[1])
    assert [manifest.Archive(runs[1], found).read(file) for file in found.files] == [b"a = 1\n", b""]


def test_link_beside_a_run_is_not_taken_for_an_archive(tmp_path: Path) -> None:
    """Somebody else's link to the same content isn't followed."""
    (tmp_path / "train.py").write_text("")
    one = record(tmp_path, "one", where=tmp_path / "runs")
    archive = one.path / "code-1.zip"
    archive.rename(tmp_path / "away")
    archive.symlink_to(tmp_path / "away")
    two = record(tmp_path, "two", where=tmp_path / "runs")
    assert not (two.path / "code-1.zip").is_symlink()
    assert (two.path / "code-1.zip").stat().st_nlink == 1


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_archive_that_is_damaged_anywhere_is_said(method: int, tmp_path: Path) -> None:
    """Whatever its unpacking raises, which depends on how it was packed: the file isn't what was recorded."""
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    text = b"a = 1\n" * 20
    file = manifest.SourceFile(
        path="a.py", origin="imported", digest=hashlib.sha256(text).hexdigest(), bytes=len(text), kept=True
    )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        archive.writestr(file.digest, text)
    whole = packed.getvalue()
    for place in range(len(whole)):
        damaged = whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
        (run.path / "code-1.zip").write_bytes(damaged)
        with contextlib.suppress(Damaged):
            assert manifest.Archive(run, manifest.Manifest(run="r")).read(file) == text


@pytest.mark.slow
def test_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """No more of a file is read than its record says, whatever the archive holds."""
    (tmp_path / "train.py").write_text("a")
    run = record(tmp_path, where=tmp_path / "runs")
    found = manifest.read(run)
    (file,) = found.files
    (run.path / "code-1.zip").write_bytes(manifest.pack({file.digest: bytes(200_000_000)}))
    tracemalloc.start()
    with pytest.raises(Damaged, match=r"isn't what was recorded"):
        manifest.Archive(run, found).read(file)
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"run": 5}', b'{"run": "a", "files": [{}]}', b"[" * 100_000])
def test_damaged_record_is_one_line(content: bytes, tmp_path: Path) -> None:
    """Whatever lies there, no traceback."""
    (tmp_path / "train.py").write_text("a")
    run = record(tmp_path, where=tmp_path / "runs")
    (run.path / "code-1.json").write_bytes(content)
    with pytest.raises(Damaged, match=r"isn't what a record of code must be"):
        manifest.read(run)


def test_record_is_awaited_while_the_relay_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where all is there, nor without a relay."""
    (tmp_path / "train.py").write_text("")
    run = record(tmp_path, where=tmp_path / "runs")
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            os.utime(run.path / "code-1.json", ns=(2**60, 2**60))

    monkeypatch.setattr(manifest, "time", types.SimpleNamespace(monotonic=lambda: 0.0, sleep=sleep))
    manifest.await_record(run)
    spool = run.path / "code-1.modules"
    spool.touch()
    os.utime(spool, ns=(2**59, 2**59))
    os.utime(run.path / "code-1.json", ns=(2**58, 2**58))
    manifest.await_record(run)
    assert slept == []
    (run.path / "relay.lease").touch()
    manifest.await_record(run)
    assert len(slept) == 3


def test_process_gives_way_to_deliveries_when_training_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has just begun is ended, once, and begun again afterwards; one that reads data for long goes on."""
    run = record(tmp_path, where=tmp_path / "runs")
    (run.path / "code-1.modules").touch()
    clock = [100.0]
    monkeypatch.setattr(code_keeper, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    started: list[mock.Mock] = []

    def start(*_: object, **__: object) -> mock.Mock:
        started.append(mock.Mock(**{"poll.return_value": None}))
        return started[-1]

    monkeypatch.setattr(helper_process, "start", start)
    keeper = CodeKeeper(Beside(run, run.read_info(), 1, lambda text, _: pytest.fail(text)))
    keeper.begin()
    keeper.poll()
    assert started == []
    clock[0] += 2.0
    keeper.poll(RelayMoment("training", crowded=True))
    assert started == []
    keeper.poll()
    keeper.give_way()
    started[0].kill.assert_called_once()
    started[0].poll.return_value = -9
    keeper.poll(RelayMoment("over"))
    keeper.give_way()
    assert len(started) == 2
    started[1].kill.assert_not_called()
    assert not keeper.idle
    started[1].poll.return_value = 0
    keeper.poll(RelayMoment("over"))
    assert keeper.idle
    keeper.close()
    assert not (run.path / "code-1.modules").exists()


def test_code_waits_for_a_full_disk(small_disk: Path) -> None:
    """What the disk refuses is kept by the next process, once there is room."""
    (small_disk / "train.py").write_text("x = 1\n" * 3000)
    run = RunDirectory(small_disk / "runs" / "p" / "r")
    run.make()
    run.write_info(run_info(run.path, program=str(small_disk / "train.py")))
    spool = run.path / "code-1.modules"
    spool.write_bytes(msgspec.json.encode(modules.Head(str(small_disk))) + b"\n")
    fill(small_disk)
    assert keep(run, CaptureTask(1, os.getppid())) == helper_process.AGAIN
    free(small_disk)
    assert keep(run, CaptureTask(1, os.getppid())) == helper_process.DONE
    assert [file.path for file in manifest.read(run, 1).files] == ["train.py"]


def test_disk_that_refuses_the_code_is_waited_for_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process is started every ten seconds while training runs and for a minute afterwards; then it is said, once."""
    (tmp_path / "train.py").write_text("")
    run = record(tmp_path, where=tmp_path / "runs")
    spool = run.path / "code-1.modules"
    spool.touch()
    said: list[str] = []
    started: list[float] = []
    now = [1000.0]

    def start(*_: object, **__: object) -> types.SimpleNamespace:
        started.append(now[0])
        return types.SimpleNamespace(poll=lambda: helper_process.AGAIN)

    keeper = CodeKeeper(Beside(run, run.read_info(), 1, lambda text, _: said.append(text)))
    monkeypatch.setattr(helper_process, "start", start)
    monkeypatch.setattr(code_keeper.time, "monotonic", lambda: now[0])
    keeper.begin()
    for second in range(200):
        now[0] += 1.0
        keeper.poll(RelayMoment("over" if second >= 100 else "training"))
        assert keeper.idle is (second > 160)
    assert 13 <= len(started) <= 18
    assert said == ["the code that ran isn't kept: the disk refuses it"]
    assert spool.exists()
