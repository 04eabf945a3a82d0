"""The door to a run's files: nothing that somebody plants in a run's directory leads out of it or holds a reader up."""

from __future__ import annotations

import ast
import contextlib
import errno
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import trackers
from trackers.support import confined

MODES = ("rb", "ab", "wb", "xb")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's directory beside a file and a folder that aren't its own."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/precious.txt").write_text("precious")
    for folder in ("streams", "delivery"):
        (tmp_path / "run" / folder).mkdir(parents=True)
    (tmp_path / "run/streams/rank-0.1.jsonl").write_bytes(b"{}\n")
    return tmp_path / "run"


def plant(run: Path, kind: str) -> Path:
    """Something that doesn't belong into a run's directory; the path by which it would be used."""
    victim = run.parent / "victim"
    target = run / "delivery/json.json"
    if kind == "a link to a file":
        target.symlink_to(victim / "precious.txt")
    elif kind == "a link to nothing":
        target.symlink_to(victim / "new.txt")
    elif kind == "a link through /proc":
        target.symlink_to(f"/proc/self/root{victim}/precious.txt")
    elif kind == "a folder that is a link":
        (run / "delivery").rmdir()
        (run / "delivery").symlink_to(victim)
        target = run / "delivery/precious.txt"
    elif kind == "a folder above that is a link":
        (run / "media").symlink_to(victim.parent)
        target = run / "media/victim/precious.txt"
    elif kind == "a pipe":
        os.mkfifo(target)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as listening:
            here = os.open(target.parent, os.O_RDONLY)
            listening.bind(f"/proc/self/fd/{here}/{target.name}")
            os.close(here)
    elif kind == "a folder":
        target.mkdir()
    elif kind == "a device":
        if os.geteuid() != 0:
            pytest.skip("needs root: only root makes devices")
        os.mknod(target, 0o20666, os.makedev(1, 5))
    return target


PLANTED = (
    "a link to a file", "a link to nothing", "a link through /proc", "a folder that is a link",
    "a folder above that is a link", "a pipe", "a socket", "a folder", "a device",
)  # fmt: skip


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_thing_is_not_used(run: Path, kind: str) -> None:
    """It is opened for nothing, at once, and what it points to stays as it is."""
    path = plant(run, kind)
    for mode in MODES:
        with pytest.raises(OSError, match="Errno"):
            confined.open_file(path, mode)
    assert not confined.is_file(path)
    with contextlib.suppress(OSError):  # a new file may take the place of what was planted
        confined.write_whole(path, b"new")
    assert {file.name: file.read_text() for file in (run.parent / "victim").iterdir()} == {"precious.txt": "precious"}


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="needs root: links of another account")
@pytest.mark.parametrize("level", ["run", "project"])
def test_link_of_another_account_is_not_followed(level: str, tmp_path: Path) -> None:
    """In the place of a run's directory or its project's; one's own, and those to the other account's, count."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for place in (mine, theirs):
        (place / "r").mkdir(parents=True)
        (place / "r/run.json").write_text(place.name)
        for path in (place, place / "r"):
            os.chown(path, *((0, 0) if place == mine else (65534, 65534)))
    (tmp_path / "p").mkdir()
    link = tmp_path / "p/r" if level == "run" else tmp_path / "q"
    path = link / "run.json" if level == "run" else link / "r/run.json"
    for target, owner, counts in ((mine, 65534, False), (mine, 0, True), (theirs, 65534, True), (theirs, 0, True)):
        link.unlink(missing_ok=True)
        link.symlink_to(target / "r" if level == "run" else target)
        os.lchown(link, owner, owner)
        if counts:
            assert confined.read(path).decode() == target.name
            continue
        for use in (
            confined.read, lambda path: confined.open_file(path, "ab"), lambda path: confined.write_whole(path, b"new"),
            lambda path: confined.make_folder(path.parent / "streams"), confined.remove,
        ):  # fmt: skip
            with pytest.raises(OSError, match="another account's link"):
                use(path)
        assert (mine / "r/run.json").read_text() == "mine"
        assert [file.name for file in (mine / "r").iterdir()] == ["run.json"]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="needs root: links of another account")
def test_nothing_is_made_behind_another_accounts_link(tmp_path: Path) -> None:
    """A directory that files are to lie in: what would be refused afterwards isn't made."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    os.lchown(tmp_path / "link", 65534, 65534)
    with pytest.raises(OSError, match="another account's link"):
        confined.make_base(tmp_path / "link/out")
    assert not list((tmp_path / "mine").iterdir())
    os.lchown(tmp_path / "link", 0, 0)
    confined.make_base(tmp_path / "link/out/deeper")
    assert (tmp_path / "mine/out/deeper").is_dir()


@pytest.mark.parametrize("kind", [kind for kind in PLANTED if "link" in kind])
def test_link_is_named(run: Path, kind: str) -> None:
    """The error says which part of the path is a link, also where that is a folder."""
    path = plant(run, kind)
    link = next(
        run.joinpath(*path.relative_to(run).parts[:n])
        for n in (1, 2)
        if run.joinpath(*path.relative_to(run).parts[:n]).is_symlink()
    )
    for use in (
        confined.read,
        lambda path: confined.open_file(path, "ab"),
        lambda path: confined.make_folder(path / "x", root=run),
    ):
        with pytest.raises(OSError, match="is a link") as caught:
            use(path)
        assert caught.value.filename == str(link)


def test_ordinary_file_is_used(run: Path) -> None:
    """Reading, appending, replacing, renaming, removing: as with the system's own calls."""
    path = run / "delivery/json.json"
    confined.write_whole(path, b"one")
    assert confined.read(path) == b"one"
    with confined.open_file(path, "ab") as file:
        file.write(b" two")
    with confined.open_text(path) as text:
        assert text.read() == "one two"
    confined.make_folder(run / "media/ab", root=run)
    confined.replace(path, run / "media/ab/kept", root=run)
    assert confined.is_file(run / "media/ab/kept")
    assert not confined.is_file(path)
    confined.remove(run / "media/ab/kept")
    assert sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()) == ["streams/rank-0.1.jsonl"]
    with pytest.raises(FileNotFoundError):
        confined.read(path)
    with pytest.raises(FileExistsError):
        confined.write_new(run / "streams/rank-0.1.jsonl", b"")


def test_no_link_is_made_through_a_link(run: Path) -> None:
    """A link lands in the folder that its path names, over nothing that is there, or nowhere."""
    victim = run.parent / "victim"
    (run / "links").mkdir()
    confined.link(run / "links/a", "../streams", root=run)
    assert os.readlink(run / "links/a") == "../streams"
    with pytest.raises(FileExistsError):
        confined.link(run / "links/a", "../elsewhere", root=run)
    (run / "through").symlink_to(victim)
    for path in ("through/a", "../victim/a"):
        with pytest.raises(OSError, match="Errno"):
            confined.link(run / path, "b", root=run)
    assert [path.name for path in victim.iterdir()] == ["precious.txt"]


@pytest.mark.parametrize("path", ["../victim/precious.txt", "streams/../../victim/precious.txt", "/etc/hostname"])
def test_path_that_leads_out_is_refused(run: Path, path: str) -> None:
    """Below a given directory there is no way up, and no other directory."""
    with pytest.raises(OSError, match="Errno") as caught:
        confined.read(run / path, root=run)
    assert caught.value.errno in (errno.ELOOP, errno.EXDEV)


def test_folder_that_is_swapped_meanwhile_leads_nowhere(run: Path) -> None:
    """A folder that becomes a link, and a folder again, while files are written: none of them lands elsewhere."""
    victim, over = run.parent / "victim", threading.Event()

    def swap() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                os.rename(run / "delivery", run / "kept")
                os.symlink(victim, run / "delivery")
                os.unlink(run / "delivery")
                os.rename(run / "kept", run / "delivery")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for number in range(300):
            with contextlib.suppress(OSError):
                confined.write_whole(run / f"delivery/{number}", b"x")
    finally:
        over.set()
        thread.join()
    assert [path.name for path in victim.iterdir()] == ["precious.txt"]


def test_new_files_are_exclusive_and_plain(run: Path) -> None:
    """A temporary name can't be guessed, what is there isn't written over, a file has its name once it is complete, and
    no mode makes one run as somebody else."""
    assert len({confined.temporary(run / "x") for _ in range(100)}) == 100
    fd = confined.open_fd(run / "x", os.O_CREAT | os.O_WRONLY, 0o6777)
    assert os.fstat(fd).st_mode & 0o7000 == 0
    os.close(fd)
    confined.write_new(run / "y", b"whole")
    with pytest.raises(FileExistsError):
        confined.write_new(run / "y", b"other")
    seen: list[bytes] = []
    confined.write_whole(run / "y", b"new", before=lambda: seen.append((run / "y").read_bytes()))
    assert [*seen, (run / "y").read_bytes()] == [b"whole", b"new"]


def test_other_name_of_ones_own_file_is_not_written_to(run: Path) -> None:
    """In a stranger's directory a hard link to a file of the reader's isn't written to; in one's own it is."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a directory of somebody else's")
    os.link(run.parent / "victim/precious.txt", run / "relay.log")
    confined.open_file(run / "relay.log", "ab").close()
    os.chown(run, 65534, 65534)
    with pytest.raises(OSError, match="other names"):
        confined.open_file(run / "relay.log", "ab")
    with pytest.raises(OSError, match="other names"):
        confined.open_file(run / "relay.log", "wb")
    assert confined.read(run / "relay.log"), "nor is it emptied"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "a\\b", "a\0b", "a\nb", "x" * 256, 5, None])
def test_name_that_is_a_path_is_not_plain(name: object) -> None:
    """What was read somewhere becomes a file's name only if it is one."""
    assert not confined.is_plain_name(name)
    assert confined.is_plain_name("rank-0.1.jsonl")


@pytest.mark.parametrize("path", ["", "/a", "a/../b", "../a", "a//b", "a/./b", "a\\b", "a/", 5, None])
def test_path_that_leads_elsewhere_is_not_inside(path: object) -> None:
    """What a server or a log names becomes a path only if it stays below where it is put."""
    assert not confined.is_inside(path)
    assert confined.is_inside("media/ab/abcd.png")


ROOT = Path(trackers.__file__).parent
WAYS_AROUND = ("open", "read_bytes", "read_text", "write_bytes", "write_text", "touch")
HANDLES_RUNS = ("journal/*.py", "support/seekable_zstd.py", "ranks/launch.py", "analysis/run_list.py",
                "relay/**/*.py", "ranks/meeting.py", "media/base.py", "retention/archive.py",
                "backends/**/*.py")  # fmt: skip
"""Modules whose paths lie below a run."""
REASONS = {
    "backends/mlflow/store.py": "the database's lock lies beside the database",
    "backends/mlflow/artifacts.py": "temporary files of its own; media come through pixels.path",
    "backends/shared/directory.py": "a probe in a directory that the reader named, made exclusively",
    "backends/wandb/client.py": "/dev/null; the log of W&B's client in W&B's own folder",
    "backends/wandb/media.py": "temporary files of its own; media come through pixels.path",
    "backends/trackio/media.py": "temporary files of its own",
    "backends/trackio/tracker.py": "a temporary file of its own, which trackio copies",
    "relay/nodes/encryption.py": "what openssl is told and makes, in a temporary directory of its own",
    "relay/agent/endpoint.py": "this process's own entries in /proc; the agents' directory, by its descriptor",
    "relay/agent/slot_locks.py": "a file in the agents' directory, by its descriptor",
    "relay/delivery/pace.py": "a file in the user's own runtime directory, by its descriptor",
    "journal/forked_helper.py": "this process's own entries in /proc, and /dev/null",
    "relay/console_sources.py": "the file that training prints into, where it is the one that training said",
    "relay/environment.py": "descriptions of installed packages",
    "retention/archive.py": "a directory, to have its names on the disk",
    "media/base.py": "the user's own file, that training logs",
    "journal/attempts.py": "a checkpoint that training names",
    "journal/fingerprint_cache.py": "the user's own cache",
    "journal/signature.py": "the user's own key",
}
"""Modules that may open a file by another way, and which."""


def ways_around(module: Path) -> Iterator[str]:
    """Calls that open a file by its path, not through the door."""
    for node in ast.walk(ast.parse(module.read_text())):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if "/proc/" in ast.unparse(node):
            continue
        if isinstance(function, ast.Name) and function.id == "open":
            yield f"{module.name}:{node.lineno}: open"
        elif isinstance(function, ast.Attribute) and function.attr in WAYS_AROUND:
            owner = function.value.id if isinstance(function.value, ast.Name) else ""
            known = owner in ("confined", "tracker", "way") or not (
                owner == "os" or function.attr != "open" or _is_path(node)
            )
            if not known:
                yield f"{module.name}:{node.lineno}: {ast.unparse(function)}"


def _is_path(call: ast.Call) -> bool:
    """Whether ``x.open(…)`` opens a path: its first argument is a mode, or there is none but keywords."""
    mode = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    return isinstance(mode, str) or any(keyword.arg in ("encoding", "newline") for keyword in call.keywords)


def test_no_module_goes_around_the_door() -> None:
    """What handles files of runs opens them through the door, but for a short list with reasons."""
    modules = {path for pattern in HANDLES_RUNS for path in ROOT.glob(pattern)}
    found = {str(path.relative_to(ROOT)): list(ways_around(path)) for path in sorted(modules)}
    around = {name: calls for name, calls in found.items() if calls}
    assert set(around) <= set(REASONS), f"use trackers.support.confined, or say why not: {around}"
