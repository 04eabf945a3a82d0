"""Images, tables and artifacts that are logged while the disk refuses files: each is kept once, or counted."""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trackers
from tests.faults.disks import fill, free, small_disk
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamReader
from trackers.records import ArtifactRecord, Finish, Media, Metrics, Record, files_of
from trackers.support import backlog
from trackers.support.clock import monotonic
from trackers.training import recorder
from trackers.values.device_copy import DeferredNumber

__all__ = ["small_disk"]

STEPS = 14


class Never:
    """An event of an accelerator that hangs."""

    ready = False


@pytest.fixture
def run(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run without a relay on the small disk."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    monkeypatch.chdir(small_disk.parent)
    for step in range(STEPS):
        folder = Path("files", str(step), "inner")
        folder.mkdir(parents=True)
        (folder.parent / "a.bin").write_bytes(b"a%d" % step)
        (folder / "b.bin").write_bytes(b"b%d" % step * 1000)
    return trackers.init("json", project="p", id="r", mode="offline", dir=small_disk / "runs")


def directory(run: Any) -> RunDirectory:
    return RunDirectory(Path(run.dir))


def logged(run: Any) -> list[Record]:
    return StreamReader(directory(run).stream(StreamName("rank", 0, 1))).read(100_000, 1 << 30)


def image(step: int, side: int = 16) -> trackers.Image:
    return trackers.Image(np.random.default_rng(step).integers(0, 255, (side, side, 3), np.uint8))


def table(step: int) -> trackers.Table:
    return trackers.Table(["text", "image"], [["x" * 9000, image(step)], [str(step), None]])


def log_all(run: Any, step: int) -> None:
    """A number, an image, several, a large table with an image in it, and artifacts: a file and a directory."""
    run.log({"loss": float(step), "one": image(step), "many": [image(step + n) for n in (1, 2)], "table": table(step)})
    folder = Path("files", str(step))
    run.log_artifact(folder, name="folder")
    run.log_artifact(folder / "a.bin", name="file")
    shutil.rmtree(folder)  # kept as it was


def all_there(run: Any, steps: int) -> None:
    """Each record once, in order, with the files that it names, before the record of the end."""
    records = logged(run)
    assert [record.values["loss"] for record in records if isinstance(record, Metrics)] == list(range(steps))
    for name in ("one", "many", "table"):
        found = [record.step for record in records if isinstance(record, Media) and record.name == name]
        assert found == list(range(steps)), name
    for name, size in (("folder", 2), ("file", 1)):
        artifacts = [record for record in records if isinstance(record, ArtifactRecord) and record.name == name]
        assert [len(record.files) for record in artifacts] == [size] * steps
        for step, record in enumerate(artifacts):
            kept = (directory(run).path / record.files[0].file).read_bytes()
            assert kept == b"a%d" % step
    for record in records:
        for file in files_of(record):
            assert (directory(run).path / file).stat().st_size, record
    assert isinstance(records[-1], Finish)
    assert not list(directory(run).media.glob(".tmp-*"))


class Refusals:
    """Ways in which a disk refuses new files, and how each ends."""

    def __init__(self, disk: Path, run: Any) -> None:
        self.disk, self.run = disk, run

    def full(self) -> Callable[[], object]:
        fill(self.disk)
        return lambda: free(self.disk)

    def no_inodes(self) -> Callable[[], object]:
        (self.disk / "many").mkdir()
        with contextlib.suppress(OSError):
            for number in range(1000):
                (self.disk / "many" / str(number)).touch()
        return lambda: shutil.rmtree(self.disk / "many")

    def read_only(self) -> Callable[[], object]:
        # A mount with open files can't be made read-only; a read-only one over its folder can.
        subprocess.run(["mount", "--bind", str(self.run), str(self.run)], check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", str(self.run)], check=True)
        return lambda: subprocess.run(["umount", "-l", str(self.run)], check=True)

    def limit(self) -> Callable[[], object]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)

    def folder_blocked(self) -> Callable[[], object]:
        media = self.run / "media"
        shutil.rmtree(media, ignore_errors=True)
        media.write_text("no folder")
        return media.unlink


@pytest.mark.parametrize("how", ["full", "no_inodes", "read_only", "limit", "folder_blocked"])
@pytest.mark.parametrize("ends", ["later", "in finish"])
def test_files_wait_for_the_disk(
    how: str, ends: str, run: Any, small_disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the reason and whatever is logged: with the numbers, all media and artifacts arrive, in order."""
    before = 0 if how == "folder_blocked" else 2
    for step in range(before):
        log_all(run, step)
    end = getattr(Refusals(small_disk, directory(run).path), how)()
    monkeypatch.setattr(recorder, "POLL_S", 0.0)
    run._recorder.poll_at = 0.0
    for step in range(before, 12):
        log_all(run, step)
    if ends == "later":
        end()
        for step in range(12, STEPS):
            log_all(run, step)
        run.finish(timeout=60)
    else:
        pauses = iter([lambda: 0, end])
        monkeypatch.setattr(recorder.time, "sleep", lambda seconds: next(pauses)())
        run.finish(timeout=60)
    all_there(run, STEPS if ends == "later" else 12)
    said = capsys.readouterr().err
    assert "lost" not in said
    assert said.count("media and files can't be written; training goes on") == 1


def test_files_are_lost_only_beyond_the_memory(
    run: Any, small_disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten times what memory may hold: the first ones are kept, the others are counted and said; numbers go on."""
    monkeypatch.setattr(backlog, "HELD_BYTES", 100_000)
    Refusals(small_disk, directory(run).path).folder_blocked()
    for step in range(100):
        run.log({"loss": float(step), "image": image(step, 58)})  # 10 kB
    (directory(run).path / "media").unlink()
    run.finish(timeout=60)
    records = logged(run)
    kept = [record.step for record in records if isinstance(record, Media)]
    assert 8 <= len(kept) < 10
    assert kept == list(range(len(kept)))
    assert [record.step for record in records if isinstance(record, Metrics)] == list(range(100))
    said = capsys.readouterr().err
    assert f"{100 - len(kept)} records of media and files were lost: " in said


def test_files_that_still_wait_at_the_end_are_counted(
    run: Any, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk that takes numbers and no files: the run ends after its time-out, and says what it lost and why."""
    Refusals(small_disk, directory(run).path).folder_blocked()
    for step in range(5):
        log_all(run, step)
    run.finish(timeout=0.3)
    said = capsys.readouterr().err
    assert "finish: 25 records of media and files wait up to 0 s for the disk" in said
    assert re.search(r"25 records of media and files were lost: .*: see to .*media", said)
    assert isinstance(logged(run)[-1], Finish)
    assert not [record for record in logged(run) if files_of(record)]


def test_end_waits_once_for_all_that_waits(run: Any, small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An accelerator that never answers and a disk that takes no files: together they have the time-out, not each."""
    Refusals(small_disk, directory(run).path).folder_blocked()
    run.log({"loss": DeferredNumber([Never()], lambda: 1.0)}, step=0)
    log_all(run, 1)
    began = monotonic()
    run.finish(timeout=3)
    assert monotonic() - began < 5.5
    said = capsys.readouterr().err
    assert "values were given up" in said
    assert "5 records of media and files were lost" in said


def test_flush_tells_whether_files_still_wait(run: Any, small_disk: Path) -> None:
    """What waits in memory isn't at the trackers; once the disk takes it, it is."""
    end = Refusals(small_disk, directory(run).path).folder_blocked()
    log_all(run, 0)
    assert not run.flush(timeout=0.5)
    end()
    assert run.flush(timeout=0.5)


@pytest.mark.parametrize("changed", [False, True])
def test_large_file_is_read_again_at_the_end(
    changed: bool, run: Any, small_disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that memory has no room for is copied when the disk has room; if it has changed by then, that is said."""
    monkeypatch.setattr(backlog, "HELD_BYTES", 10_000)
    fill(small_disk)
    large = Path("large.bin")
    large.write_bytes(b"1" * 100_000)
    run.log_artifact(large)
    if changed:
        large.write_bytes(b"2" * 100_000)
    free(small_disk)
    run.finish(timeout=0)
    artifacts = [record for record in logged(run) if isinstance(record, ArtifactRecord)]
    assert len(artifacts) == (not changed)
    assert (f"1 records of media and files were lost: {large.absolute()} changed" in capsys.readouterr().err) is changed
    if not changed:
        assert (directory(run).path / artifacts[0].files[0].file).read_bytes() == b"1" * 100_000


@pytest.mark.parametrize("seed", range(6))
def test_random_fillings_lose_and_reorder_nothing(seed: int, run: Any, small_disk: Path, monkeypatch: Any) -> None:
    """The disk fills up and gets room at random, now for small files only: all arrives, in order."""
    chance, is_full = random.Random(seed), False
    for step in range(STEPS):
        monkeypatch.setattr(recorder, "POLL_S", chance.choice((0.0, 100.0)))
        if chance.random() < 0.5:
            if is_full:
                free(small_disk)
            else:
                fill(small_disk)
                if chance.random() < 0.5:
                    with (small_disk / "filler").open("r+b") as file:
                        file.truncate(file.seek(0, os.SEEK_END) - 4096 * chance.randrange(1, 12))
            is_full = not is_full
        log_all(run, step)
    if is_full:
        free(small_disk)
    run.finish(timeout=60)
    all_there(run, STEPS)


def test_files_that_waited_are_written_part_by_part(
    run: Any, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call writes for a moment only; the next part follows soon, and all are there before the run ends."""
    monkeypatch.setattr(backlog, "SLICE_S", -1.0)  # nothing fits
    refused = Refusals(small_disk, directory(run).path).folder_blocked()
    for step in range(5):
        log_all(run, step)
    refused()
    now = run._recorder.now() + 10.0
    run._recorder.poll(now)
    assert run._recorder.poll_at == now + recorder.POLL_S
    times = iter(range(1000))
    monkeypatch.setattr(backlog, "monotonic", lambda: next(times))
    monkeypatch.setattr(backlog, "SLICE_S", 3)
    waiting = []
    while not waiting or waiting[-1]:
        run._recorder.poll(now := now + 10.0)
        waiting.append(len(run._recorder._held))
        if waiting[-1] and waiting[-1] < ([25, *waiting])[-2]:
            assert run._recorder.poll_at == now + recorder.SOON_S
    assert len(waiting) > 3
    run.finish(timeout=60)
    all_there(run, 5)
