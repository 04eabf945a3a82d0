"""What training printed, in W&B's Logs tab: each line once, whatever died on the way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.backends.wandb.support import CLIENT, ID, driver, sync
from tests.fakes.wandb_server import WandbServer
from tests.helpers import T0, Driver, stream
from trackers.backends.wandb import client, datastore_writer
from trackers.cli.app import app
from trackers.formats.wandb_datastore import records as stored
from trackers.records import Console, Metrics, Record

pytest_plugins = ["tests.backends.wandb.support"]


def printed(rows: bool = True) -> list[Record]:
    """Ten records of two lines each, and rows of metrics between them."""
    found: list[Record] = []
    for number in range(10):
        if rows:
            found.append(Metrics(step=number, time=T0 + number, values={"loss": 1.0}))
        stream_name = "stderr" if number == 3 else "stdout"
        lines = [f"{number} first", f"{number} second"]
        found.append(Console(time=T0 + number + 0.5, lines=lines, stream=stream_name))
    return stream(found)


WANTED = [f"{number} {which}" for number in range(10) for which in ("first", "second")]


def offline_lines(tmp_path: Path) -> list[str]:
    """Lines in all offline files of the run."""
    return [
        line
        for path in datastore_writer.offline_files(tmp_path / "run/wandb", ID)
        for record in stored(path)
        if record.WhichOneof("record_type") == "output_raw"
        for line in record.output_raw.line.splitlines()
    ]


def kill_after(driver: Driver, records: list[Record], count: int, commit: bool) -> None:
    """Deliver a part, and end W&B's service and the process as SIGKILL does."""
    driver.open()
    driver.write(records[:count], batch=3, commit=commit)
    client.abandon()


def lines_at(server: WandbServer) -> list[str]:
    """Lines that the server shows, without its time and level, and the end that wandb sync gave them before 0.28."""
    return [re.sub(r"^(ERROR )?\S+T\S+ ", "", line).removesuffix("\n") for line in server.runs[ID].console]


@pytest.mark.processes
def test_lines_are_in_the_offline_file(tmp_path: Path) -> None:
    """As records of W&B's own console capture, with time and stream."""
    driver(tmp_path).deliver(printed())
    assert offline_lines(tmp_path) == WANTED
    (path,) = datastore_writer.offline_files(tmp_path / "run/wandb", ID)
    found = [record.output_raw for record in stored(path) if record.WhichOneof("record_type") == "output_raw"]
    assert [one.timestamp.ToNanoseconds() // 10**8 for one in found[:2]] == [int(T0 * 10) + 5, int(T0 * 10) + 15]
    kinds = found[0].OutputType
    assert [one.output_type for one in found[2:5]] == [kinds.STDOUT, kinds.STDERR, kinds.STDOUT]


@pytest.mark.slow
@pytest.mark.processes
def test_offline_lines_are_there_once_after_kills(tmp_path: Path) -> None:
    """With the cursor stored and without, with rows between the lines and lines alone."""
    for place, rows in (("a", True), ("b", False)):
        one = driver(tmp_path / place)
        records = printed(rows)
        kill_after(one, records, 7, commit=True)
        kill_after(one, records, len(records) - 4, commit=False)
        one.deliver(records)
        assert offline_lines(tmp_path / place) == WANTED


def test_lines_are_at_the_server_once_after_kills(tmp_path: Path, server: WandbServer) -> None:
    """Those that it has aren't sent again, and none that were on their way are missing."""
    one = driver(tmp_path)
    records = printed()
    kill_after(one, records, 7, commit=True)
    kill_after(one, records, 13, commit=False)
    one.deliver(records)
    assert lines_at(server) == WANTED


@pytest.mark.slow
def test_uploaded_offline_lines_are_at_the_server(
    tmp_path: Path, server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``wandb sync`` brings what the offline files hold."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    one = driver(tmp_path)
    records = printed()
    kill_after(one, records, 9, commit=True)
    one.deliver(records)
    monkeypatch.setenv("WANDB_MODE", "online")
    sync(tmp_path)
    order = sorted if CLIENT < (0, 28) else list  # which sends the lines of stderr after others
    assert order(lines_at(server)) == order(WANTED)


@pytest.mark.heavy
def test_lines_of_other_ranks_and_what_is_left_out_are_marked(tmp_path: Path) -> None:
    """One log holds all ranks."""
    records: list[Record] = [
        Console(time=T0, lines=["main"]),
        Console(time=T0 + 1, lines=["other"], rank=3),
        Console(time=T0 + 2, lines=["end"], left_out=1234),
    ]
    driver(tmp_path).deliver(stream(records))
    assert offline_lines(tmp_path) == ["main", "[rank 3] other", "… 1,234 bytes left out …", "end"]


@pytest.mark.heavy
def test_lines_of_an_offline_file_are_read_back_and_copied(tmp_path: Path) -> None:
    """``trackers logs`` reads them, folded as of a terminal; a copy has them in a stream of its own."""
    driver(tmp_path).deliver(printed())
    (path,) = datastore_writer.offline_files(tmp_path / "run/wandb", ID)
    cli = CliRunner()
    assert cli.invoke(app, ["logs", str(path)]).stdout.splitlines() == WANTED
    assert cli.invoke(app, ["logs", str(path), "--stderr"]).stdout.splitlines() == ["3 first", "3 second"]
    copied = cli.invoke(app, ["copy", str(path), str(tmp_path / "copied")])
    assert copied.exit_code == 0, copied.output
    (run,) = (tmp_path / "copied/digits").iterdir()
    assert (run / "streams/console-0.1.jsonl").exists()
    assert cli.invoke(app, ["logs", str(run)]).stdout.splitlines() == WANTED
    again = cli.invoke(app, ["copy", str(run), f"json:{tmp_path / 'json'}"])
    assert again.exit_code == 0, again.output
    (log,) = (tmp_path / "json").rglob("*.console.log")
    assert log.read_text().splitlines() == WANTED
