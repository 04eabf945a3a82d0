"""Each option that promises a bound is exceeded tenfold: the bound holds, and what is left out is said."""

from __future__ import annotations

import io
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import trackers
from tests.helpers import T0, begun_run, run_info, stream, wait_for
from tests.provenance.support import record, repository
from trackers.backends.console.tracker import ConsoleTracker
from trackers.configuration.declaration import Declaration
from trackers.configuration.kconfig import Tree
from trackers.formats import megatron_line
from trackers.journal.console_spool import ConsoleSpool, PrintedFile, note_files
from trackers.journal.run_directory import StreamName
from trackers.journal.stream import StreamReader
from trackers.provenance import manifest
from trackers.records import Console, Metrics
from trackers.relay.agent.work_slots import SlotRequest, WorkSlots
from trackers.relay.console_collector import ConsoleCollector
from trackers.tracker import Cursor, State

WORDS = re.compile(r"\b(maximum|largest|at most|at once|no more than|beyond|up to|limit|bound)", re.IGNORECASE)
"""What an option says that promises a bound."""
NAMES = re.compile(r"_(MAX|LIMIT|MB|GB|KB|MOST)(_|$)")
NO_BOUNDS = {"TRACKER_TIMING_LEVEL": "which timers are active"}
"""Options whose words say something else."""


def code(tmp_path: Path) -> None:
    """Ten megabytes of code, one may be kept: the others are named with their sizes."""
    work = tmp_path / "work"
    repository(work, {"train.py": ""})
    (work / "data").mkdir()
    for number in range(40):
        (work / "data" / f"{number}.txt").write_text(f"{number:02d}" * 125_000)
    options = {"TRACKER_CODE_MAX_MB": 1, "TRACKER_CODE_UNTRACKED": "data"}
    files = manifest.read(record(work, where=tmp_path / "runs", options=options)).files
    assert sum(file.bytes for file in files if file.kept) <= 1_000_000
    refused = [file for file in files if not file.kept]
    assert len(refused) >= 36
    assert all("TRACKER_CODE_MAX_MB" in file.why and file.bytes == 250_000 for file in refused)


def console(tmp_path: Path) -> None:
    """Ten megabytes are printed at once, by a spool, by several of them, and into a file; one is kept, and the end."""
    for way in ("spool", "two streams", "file"):
        for lives in (False, True) if way == "spool" else (False,):
            run, writer = begun_run(tmp_path / way / str(lives) / "one")
            writer.release()
            info = run.read_info()
            info.options["TRACKER_CONSOLE_MAX_MB"] = 1
            lines, size = [b"%0999d\n" % number for number in range(10_000)], 10_000_000
            collecting = ConsoleCollector(run, info, 1, os.getpid())
            if way == "file":
                path = tmp_path / way / f"{lives}.log"
                path.write_bytes(b"".join(lines))
                status = path.stat()
                file = PrintedFile(99, str(path), status.st_dev, status.st_ino, 0, size)
                note_files(run.console, 0, 1, {"output": file})
            else:
                names = ("stdout", "stderr") if way == "two streams" else ("stdout",)
                spools = [ConsoleSpool(run.console, 0, 1, name, 1 << 30) for name in names]
                for number, line in enumerate(lines):
                    spools[number % len(spools)].add(line)
                for out in spools:
                    out.close()
            if lives:
                collecting.poll()
            collecting.end()
            found = StreamReader(run.stream(StreamName("console", 0, 1))).read(100_000, 1 << 30)
            kept = [line for record in found if isinstance(record, Console) for line in record.lines]
            assert sum(map(len, kept)) < 2_200_000, way  # a turn of each source at most, and the last lines of each
            assert sum(len(line) + 1 for line in kept) + sum(record.left_out for record in found) == size, way
            assert kept[0] == f"{0:0999d}"
            assert kept[-1] == f"{9_999:0999d}"


def console_values(tmp_path: Path) -> None:
    """A line of twenty values where two fit: it shows two, and how many more there are."""
    out = io.StringIO()
    tracker = ConsoleTracker(out)
    tracker.open(run_info(tmp_path, options={"TRACKER_CONSOLE_VALUES": 2}), State())
    values = {f"loss{number}": 1.0 for number in range(20)}
    tracker.write(stream([Metrics(step=0, time=T0, values=values)]), Cursor(1))
    (line,) = out.getvalue().splitlines()
    assert line.count("loss") == 2
    assert line.endswith("… 18 more")


def media(tmp_path: Path) -> None:
    """Images, tables, sounds, videos and files of ten megabytes where one may be kept: none is, each is named."""
    big = np.random.default_rng(0).integers(0, 255, (1900, 1900, 3), np.uint8)
    (tmp_path / "big.mp4").write_bytes(bytes(10_000_000))
    values = {
        "image": trackers.Image(big),
        "table": trackers.Table(["text"], [["x" * 1000]] * 11_000),
        "audio": trackers.Audio(np.zeros(5_000_000, np.float32), sample_rate=8000),
        "video": trackers.Video(np.zeros((10, 600, 600, 3), np.uint8)),
        "file": trackers.Video(tmp_path / "big.mp4"),
        "page": trackers.Html("<p>" + "x" * 10_000_000),
    }
    options = {"TRACKER_MEDIA_MAX_MB": 1, "TRACKER_RELAY": False}
    run = trackers.init("json", project="p", mode="offline", dir=tmp_path / "runs", options=options)
    for name, value in values.items():
        run.log({name: value, "loss": 1.0})
    run.finish()
    assert [path for path in Path(run.dir, "media").rglob("*") if path.is_file()] == []
    found = StreamReader(Path(run.dir, "streams", "rank-0.1.jsonl")).read()
    assert sum(isinstance(record, Metrics) for record in found) == len(values)


def finish(tmp_path: Path) -> None:
    """A relay that would never deliver: training goes on after a second, and says what to do."""
    options = {"TRACKER_FINISH_TIMEOUT": 1, "TRACKER_AGENT": False}
    run = trackers.init("json", project="p", dir=tmp_path / "runs", options=options)
    run.log({"loss": 1.0})
    process = run._recorder.relay._process
    wait_for(lambda: process.poll() is None and process.pid, why="the relay's name")
    os.kill(process.pid, signal.SIGSTOP)
    try:
        run.finish()
    finally:
        os.kill(process.pid, signal.SIGCONT)
        process.wait(60)


def stragglers(tmp_path: Path) -> None:
    """Forty ranks where two of the slowest and of the quickest are listed."""
    ranks = [{"rtt_ms": float(rank)} for rank in range(40)]
    _, *ends = megatron_line.stragglers(ranks, 2)
    assert [line.split(" ranks by ")[0] for line in ends] == ["Bottom 2", "Top 2"]
    assert all(line.partition(": ")[2].count(",") == 1 for line in ends), ends


def deliveries(tmp_path: Path) -> None:
    """Forty deliveries ask where four may work: four do."""
    slots, limit = WorkSlots(4), 4
    for number in range(10 * limit):
        slots.add(SlotRequest(f"{number}"))
    granted, _ = slots.assign(0.0)
    assert len(granted) == limit
    assert slots.assign(0.1)[0] == []


BOUNDS: dict[str, Callable[[Path], None]] = {
    "TRACKER_AGENT_DELIVERIES": deliveries,
    "TRACKER_CODE_MAX_MB": code,
    "TRACKER_CONSOLE_MAX_MB": console,
    "TRACKER_CONSOLE_VALUES": console_values,
    "TRACKER_FINISH_TIMEOUT": finish,
    "TRACKER_MEDIA_MAX_MB": media,
    "TRACKER_STRAGGLER_COUNT": stragglers,
}
"""By option, what exceeds its bound."""


def promises(option: Declaration) -> bool:
    """Whether an option's name, prompt or help promises a bound."""
    is_number = option.kind in ("int", "hex")
    return is_number and bool(NAMES.search(option.symbol) or WORDS.search(f"{option.prompt} {option.help}"))


def test_each_option_that_promises_a_bound_is_exceeded() -> None:
    """An option of the Kconfig whose words promise a bound has a test here, and no other one has."""
    promised = {symbol for symbol, option in Tree().declarations.items() if promises(option)}
    assert promised - NO_BOUNDS.keys() <= BOUNDS.keys(), "add what exceeds its bound tenfold"
    assert BOUNDS.keys() | NO_BOUNDS.keys() <= Tree().declarations.keys()


@pytest.mark.processes
@pytest.mark.parametrize("option", BOUNDS)
def test_bound_holds_when_it_is_exceeded_tenfold(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What goes beyond is left out or waited for no longer, and that is said."""
    BOUNDS[option](tmp_path)
    said = capsys.readouterr().err
    if option == "TRACKER_MEDIA_MAX_MB":
        for name in ("image", "table", "audio", "video", "file", "page"):
            assert re.search(rf"log: {name}: .*raise TRACKER_MEDIA_MAX_MB", said), name
    if option == "TRACKER_FINISH_TIMEOUT":
        assert "json: not delivered within 1 s" in said
