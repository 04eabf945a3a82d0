"""The delivery loop brings every record to its tracker once, whatever that tracker does."""

from __future__ import annotations

import contextlib
import errno
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fakes.scripted import Scripted, got
from tests.helpers import T0, begun_run
from trackers import errors
from trackers.backends import registry
from trackers.journal.run_directory import RunDirectory, StreamName, replace_file
from trackers.journal.stream import StreamWriter
from trackers.records import Config, Finish, Metrics, Record, Start, encode
from trackers.relay.delivery import delivery as module
from trackers.relay.delivery.delivery import Delivery, Stop, read_account
from trackers.relay.delivery.pace import BeginPace
from trackers.support import processes
from trackers.tracker import Cursor, RunInfo, State, Verified

STEPS = 20


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BUILT_IN, "scripted", "tests.fakes.scripted:Scripted")
    monkeypatch.setattr(module, "RETRY_S", (0.0, 0.0))
    monkeypatch.setattr(module, "REFUSED_RETRY_S", (0.0, 0.0))
    monkeypatch.setattr(Scripted, "plan", staticmethod(lambda call, records: None))
    monkeypatch.setattr(Scripted, "answer", None)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A finished run of twenty steps."""
    run, writer = begun_run(tmp_path / "run", trackers=["scripted"])
    for step in range(STEPS):
        writer.write(encode(Metrics(step=step, time=T0 + step, values={"x": step})))
    writer.write(encode(Finish(time=T0 + STEPS, status="failed", exit_code=3)))
    writer.release()
    return run


def _plan(monkeypatch: pytest.MonkeyPatch, plan: Callable[[str, Sequence[Record]], None]) -> None:
    monkeypatch.setattr(Scripted, "plan", staticmethod(plan))


def _deliver(run: RunDirectory, said: list[str] | None = None, limit: int = 4) -> Delivery:
    delivery = Delivery(run, "scripted", say=(said if said is not None else []).append, alone=False)
    delivery._limit = limit
    for _ in range(500):
        if delivery.step() is None:
            return delivery
    raise AssertionError("the delivery doesn't come to an end")


def _steps(run: RunDirectory) -> list[object]:
    return [entry["step"] for entry in got(run.path) if entry.get("step") is not None]


def test_delivery_brings_all_and_closes_with_the_status(run: RunDirectory) -> None:
    """Every record in order, then the status with its exit code; the account says so."""
    _deliver(run)
    assert _steps(run) == list(range(STEPS))
    assert got(run.path)[-1] == {"closed": "failed", "exit_code": 3}
    account = read_account(run, "scripted")
    assert (account.delivered, account.rejected, account.closed, account.error) == (STEPS + 2, 0, "failed", "")


def test_delivery_again_changes_nothing_and_opens_nothing(run: RunDirectory) -> None:
    """A run that is delivered and closed isn't touched by a second delivery."""
    _deliver(run)
    before = got(run.path)
    _deliver(run)
    assert got(run.path) == before
    assert read_account(run, "scripted").state["opened"] == 1


def test_unavailable_is_retried_from_the_cursor(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A destination that fails for a while gets everything afterwards, in order, and the user is told once each way."""
    failures = iter(range(8))

    def plan(call: str, records: Sequence[Record]) -> None:
        if call == "write" and records[0].seq > 8 and next(failures, None) is not None:
            raise errors.Unavailable("no answer from http://127.0.0.1:1")

    _plan(monkeypatch, plan)
    said: list[str] = []
    _deliver(run, said)
    assert _steps(run) == list(range(STEPS))
    assert [text for text in said if "no answer" in text] == [said[0]] * len(
        [text for text in said if "no answer" in text]
    )
    assert "training goes on" in said[0]
    assert "delivering again" in said[-1]


def test_retry_after_is_respected(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the destination asks for in Retry-After is the least pause; why it waits is known at once."""

    def plan(call: str, records: Sequence[Record]) -> None:
        raise errors.Unavailable("busy", retry_after_s=7.5)

    _plan(monkeypatch, plan)
    delivery = Delivery(run, "scripted", say=lambda text: None, alone=False)
    pause = delivery.step()
    assert pause is not None
    assert pause >= 7.0
    account = read_account(run, "scripted")
    assert (account.last, account.error) == ("busy", "")


@pytest.mark.heavy
def test_server_that_asks_for_fewer_requests_is_left_alone_by_all_runs(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it answered to one run's delivery, another run's follows before it asks; then both deliver everything."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    other, writer = begun_run(tmp_path / "other", trackers=["scripted"])
    writer.write(encode(Finish(time=T0 + 1, status="finished")))
    writer.release()
    asked: list[str] = []

    def plan(call: str, records: Sequence[Record]) -> None:
        asked.append(call)
        if len(asked) == 1:
            raise errors.Unavailable("429", retry_after_s=0.4, limited=True)

    _plan(monkeypatch, plan)
    first = Delivery(run, "scripted", say=lambda text: None, alone=False)
    second = Delivery(other, "scripted", say=lambda text: None, alone=False)
    assert (first.step() or 0.0) >= 0.4
    assert (second.step() or 0.0) > 0.2
    assert len(asked) == 1
    for delivery in (second, first):
        while (pause := delivery.step()) is not None:
            time.sleep(min(pause, 0.05))
    assert _steps(run) == list(range(STEPS))


def test_client_that_tries_again_by_itself_slows_all_runs_down(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tracker whose client was refused, and went on, tells its delivery: another run's waits before it asks, be it
    only to open or to close."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    others = []
    for name in ("empty", "ended"):
        other, writer = begun_run(tmp_path / name, trackers=["scripted"])
        if name == "ended":
            writer.write(encode(Finish(time=T0 + 1, status="finished")))
        writer.release()
        others.append(other)
    asked: list[str] = []
    _plan(monkeypatch, lambda call, records: asked.append(call))
    first, empty, ended = (Delivery(one, "scripted", say=lambda text: None, alone=False) for one in (run, *others))
    for delivery in (empty, ended):
        delivery._batch = delivery._read()
        delivery._deliver(delivery._batch)
        delivery._commit_batch()
    assert asked == []
    refused = iter([True])
    monkeypatch.setattr(registry.load("scripted"), "limited", lambda tracker: next(refused, False), raising=False)
    first.step()
    before = [*asked]
    for delivery in (empty, ended):
        assert (delivery.step() or 0.0) > 0.2
    assert asked == before


def test_beginning_that_is_refused_puts_off_other_beginnings_and_no_values(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that has begun writes on; one that hasn't waits."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(module, "_server_address", lambda name, info: "server" if name == "scripted" else "")
    begun, new = (
        Delivery(begun_run(tmp_path / name, trackers=["scripted"])[0], "scripted", say=lambda text: None, alone=False)
        for name in ("begun", "new")
    )
    begun.step()

    def refuse(call: str, records: Sequence[Record]) -> None:
        raise errors.Unavailable("429", limited=True)

    _plan(monkeypatch, refuse)
    Delivery(run, "scripted", say=lambda text: None, alone=False).step()
    assert begun._wait() == 0.0
    assert new._wait() > 0.5


def test_files_are_begun_at_any_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What puts off beginnings on a server holds up no tracker that has none."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(module, "_server_address", lambda name, info: "server" if name == "scripted" else "")
    files, server = (
        Delivery(begun_run(tmp_path / name, trackers=[name])[0], name, say=lambda text: None, alone=False)
        for name in ("json", "scripted")
    )
    for delivery in (files, server):
        BeginPace(delivery.name, delivery._server).slower(None)
    assert files._wait() == 0.0
    assert server._wait() > 0.5


def test_plugin_that_wants_beginnings_apart_needs_no_place(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who gives a gap between beginnings has it, though the server isn't named."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(Scripted, "begin_apart_s", staticmethod(lambda info: 5.0), raising=False)
    other = Delivery(begun_run(tmp_path / "new", trackers=["scripted"])[0], "scripted", say=lambda text: None)
    assert Delivery(run, "scripted", say=lambda text: None, alone=False)._wait() == 0.0
    assert other._wait() > 2.0


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_wandb_runs_begin_apart_before_any_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """On its server; files of offline runs are begun at once."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    options = {"WANDB_MODE": mode}
    first, second = (
        Delivery(begun_run(tmp_path / name, trackers=["wandb"], options=options)[0], "wandb", say=lambda text: None)
        for name in "ab"
    )
    assert first._wait() == 0.0
    assert (second._wait() > 0.3) is (mode == "online")


def test_what_a_client_was_refused_later_is_set_aside(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracker that hears of it after it has taken a record: kept with its reason, once though it comes again."""
    late = Config(time=T0, values={"bad": 1}, id="config/bad")
    answers = iter([[(late, "too bad")], [], [(late, "too bad")]])
    monkeypatch.setattr(Scripted, "refused", lambda tracker: next(answers, []), raising=False)
    said: list[str] = []
    _deliver(run, said)
    kept = [msgspec.json.decode(line) for line in (run.delivery / "scripted.rejected.jsonl").read_bytes().splitlines()]
    assert [(entry["id"], entry["reason"]) for entry in kept] == [("config/bad", "too bad")]
    assert any("refused a record (too bad)" in text for text in said)
    assert read_account(run, "scripted").rejected == 1
    assert _steps(run) == list(range(STEPS))


def test_client_that_begins_again_by_itself_puts_off_other_beginnings(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so while it is being opened, by what the delivery gave it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(module, "_server_address", lambda name, info: "server" if name == "scripted" else "")
    new = Delivery(begun_run(tmp_path / "new", trackers=["scripted"])[0], "scripted", say=lambda text: None)
    opened: list[Any] = []

    class Client(Scripted):
        begin_refused: Callable[[], object] | None = None

        def open(self, info: RunInfo, state: State) -> Cursor | None:
            assert self.begin_refused is not None
            assert new._wait() == 0.0
            self.begin_refused()
            opened.append(new._wait())
            return super().open(info, state)

    monkeypatch.setattr(module.registry, "load", lambda name: Client)
    _deliver(run)
    assert opened[0] > 0.5
    assert _steps(run) == list(range(STEPS))


@pytest.mark.parametrize(("alone", "times"), [(True, [20, 40]), (False, [])])
def test_memory_of_a_burst_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool, times: list[int]
) -> None:
    """Once for each burst, in the pause after it; never in training's own process, nor for a few records."""
    monkeypatch.setattr(module, "BURST_RECORDS", 10)
    run, writer = begun_run(tmp_path / "run", trackers=["scripted"])
    delivery = Delivery(run, "scripted", say=lambda text: None, alone=alone)
    found: list[int] = []
    monkeypatch.setattr(processes, "give_back_memory", lambda: found.append(len(_steps(run))))
    for last in (20, 25, 40):
        for step in range(len(_steps(run)) if delivery._tracker else 0, last):
            writer.write(encode(Metrics(step=step, time=T0 + step, values={"x": step})))
        for _ in range(20):
            delivery.step()
    writer.release()
    assert found == times


def test_one_rejected_record_stands_alone(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused record is found by halving, kept with its reason, and everything else arrives once."""

    def plan(call: str, records: Sequence[Record]) -> None:
        if any(record.step == 7 for record in records):
            raise errors.Rejected("a bad name")

    _plan(monkeypatch, plan)
    said: list[str] = []
    _deliver(run, said, limit=16)
    assert _steps(run) == [step for step in range(STEPS) if step != 7]
    kept = [msgspec.json.decode(line) for line in (run.delivery / "scripted.rejected.jsonl").read_bytes().splitlines()]
    assert [entry["reason"] for entry in kept] == ["a bad name"]
    assert msgspec.json.decode(kept[0]["record"])["step"] == 7
    account = read_account(run, "scripted")
    assert (account.delivered, account.rejected) == (STEPS + 1, 1)
    assert any("show --rejected" in text for text in said)


def test_record_of_two_places_loses_the_refused_part_alone(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record, at its step and over its axis: it was halved without an end, and nothing after it arrived."""
    monkeypatch.setattr(Scripted, "single_axis", True)
    two, writer = begun_run(tmp_path / "two", trackers=["scripted"])
    values = {"epoch": 70.0, "val/loss": 1.0}
    writer.write(encode(Metrics(step=1, time=T0, values=values, axis=70, over=["epoch"])))
    writer.write(encode(Metrics(step=2, time=T0 + 1, values={"x": 1.0})))
    writer.write(encode(Finish(time=T0 + 2, status="finished")))
    writer.release()

    def plan(call: str, records: Sequence[Record]) -> None:
        if any(record.step == 70 for record in records):
            raise errors.Rejected("a bad name")

    _plan(monkeypatch, plan)
    _deliver(two)
    assert _steps(two) == [1, 2]
    account = read_account(two, "scripted")
    assert (account.rejected, account.closed, account.error) == (1, "finished", "")


def test_record_refused_at_the_end_is_set_aside(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what a tracker holds until it is closed, what is refused then is kept with its reason, as before."""
    held: list[Record] = []
    ended: list[bool] = []

    def plan(call: str, records: Sequence[Record]) -> None:
        held.extend(record for record in records if record.step == 7)
        ended.extend([True] if call == "close" else [])

    def refused(tracker: Scripted) -> Iterator[tuple[Record, str]]:
        return iter([(held[0], "too long")] if ended else [])

    _plan(monkeypatch, plan)
    monkeypatch.setattr(Scripted, "refused", refused)
    _deliver(run)
    kept = [msgspec.json.decode(line) for line in (run.delivery / "scripted.rejected.jsonl").read_bytes().splitlines()]
    assert [entry["reason"] for entry in kept] == ["too long"]
    assert read_account(run, "scripted").rejected == 1


def test_unexpected_exception_is_isolated_like_a_rejection(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vendor's own exception over one record costs that record only."""

    def plan(call: str, records: Sequence[Record]) -> None:
        if any(record.step == 3 for record in records):
            raise KeyError("vendor bug")

    _plan(monkeypatch, plan)
    _deliver(run)
    assert _steps(run) == [step for step in range(STEPS) if step != 3]


def _in_new_processes(run: RunDirectory, said: list[str]) -> None:
    """Deliver; what ends a process that is to be replaced is replaced, as the supervisor does."""
    for _ in range(20):
        delivery = Delivery(run, "scripted", say=said.append)
        delivery._limit = 4
        with contextlib.suppress(Stop):
            while delivery.step() is not None:
                pass
            return
    raise AssertionError("the delivery doesn't come to an end")


def test_record_that_fails_in_every_new_process_is_isolated(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a new process sends again doesn't hide that it fails where the last one did."""
    monkeypatch.setattr(Scripted, "restart_after_error", True, raising=False)
    monkeypatch.setattr(Scripted, "answer", Cursor(2))

    def plan(call: str, records: Sequence[Record]) -> None:
        if any(record.step == 7 for record in records):
            raise KeyError("vendor bug")

    _plan(monkeypatch, plan)
    said: list[str] = []
    _in_new_processes(run, said)
    assert {entry["step"] for entry in got(run.path) if entry.get("step") is not None} == set(range(STEPS)) - {7}
    assert read_account(run, "scripted").rejected == 1


def test_failure_at_each_new_process_is_told(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracker that takes again what it had, and fails behind that each time, is told, once, and kept as the error."""
    monkeypatch.setattr(Scripted, "restart_after_error", True, raising=False)
    monkeypatch.setattr(Scripted, "answer", Cursor(2))

    def plan(call: str, records: Sequence[Record]) -> None:
        if any(record.step == 7 for record in records):
            raise errors.Unavailable("no such file")

    _plan(monkeypatch, plan)
    said: list[str] = []
    with pytest.raises(AssertionError, match="come to an end"):
        _in_new_processes(run, said)
    assert said == ["scripted: no such file; training goes on, its records wait in the journal, tried again by itself"]
    assert read_account(run, "scripted").error == "no such file"


def test_broken_tracker_stops_with_the_command_that_continues(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If record after record fails with a strange exception, the delivery stops and says how to go on."""
    monkeypatch.setattr(module, "STRANGE_REJECTS", 5)

    def plan(call: str, records: Sequence[Record]) -> None:
        if call == "write":
            raise AttributeError("no such method in this version")

    _plan(monkeypatch, plan)
    said: list[str] = []
    with pytest.raises(Stop) as stop:
        _deliver(run, said)
    assert not stop.value.restart
    assert any(f"trackers sync {run.path} --to scripted" in text for text in said)
    assert read_account(run, "scripted").stopped


@pytest.mark.parametrize("call", ["open", "write", "close"])
def test_trackers_mistake_leaves_its_traceback(run: RunDirectory, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Where a tracker's own code fails, the relay's log has the file and line, once, and no secret of the message."""

    def plan(where: str, records: Sequence[Record]) -> None:
        if where == call:
            raise KeyError("https://me:hunter2hunter2@host/x") from None  # whatever else this process handles

    _plan(monkeypatch, plan)
    with contextlib.suppress(Stop):
        _deliver(run, [])
    log = run.relay_log.read_text()
    assert log.count("Traceback (most recent call last)") == 1
    assert __file__ in log
    assert "KeyError" in log
    assert "hunter2" not in log


def test_expected_failure_leaves_no_traceback(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What trackers are meant to raise is no mistake of theirs."""
    tries = iter([errors.Unavailable("away"), errors.Rejected("too long")])

    def plan(call: str, records: Sequence[Record]) -> None:
        if call == "write" and (error := next(tries, None)) is not None:
            raise error

    _plan(monkeypatch, plan)
    _deliver(run, [])
    assert not run.relay_log.exists()


def test_fatal_in_open_stops(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that refuses to work ends its delivery at once."""

    def plan(call: str, records: Sequence[Record]) -> None:
        raise errors.Fatal("version 0.1 is refused by the server")

    _plan(monkeypatch, plan)
    with pytest.raises(Stop):
        _deliver(run)
    assert read_account(run, "scripted").error == "version 0.1 is refused by the server"


def test_file_that_may_not_grow_ends_a_delivery(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that this process was given holds for as long as it lives, and so long nobody else may deliver."""

    def plan(call: str, records: Sequence[Record]) -> None:
        if call == "write":
            raise errors.Unavailable("can't write x; it is tried again") from OSError(errno.EFBIG, "File too large")

    _plan(monkeypatch, plan)
    tries: list[tuple[int, int]] = [(resource.RLIM_INFINITY,) * 2, (65536, 65536)]
    monkeypatch.setattr(resource, "getrlimit", lambda which: tries.pop(0))
    said: list[str] = []
    with pytest.raises(Stop):
        _deliver(run, said)
    assert not tries, "without a limit it is tried again"
    assert "no file may grow beyond 65,536 bytes where training was started (`ulimit -f`)" in said[-1]
    assert "trackers sync" in said[-1]


def test_refused_login_in_a_process_of_its_own_asks_for_a_new_process(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials are read afresh: the process that was refused is replaced."""

    def plan(call: str, records: Sequence[Record]) -> None:
        raise errors.Refused("401 from http://127.0.0.1:1: log in again")

    _plan(monkeypatch, plan)
    delivery = Delivery(run, "scripted", say=lambda text: None)
    with pytest.raises(Stop) as stop:
        delivery.step()
    assert stop.value.restart
    assert "401" in read_account(run, "scripted").error


def test_destination_that_holds_less_gets_it_again(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier cursor from ``open`` is where delivery goes on, with the same numbers for the same records."""
    _deliver(run)
    first = {entry["seq"]: entry["id"] for entry in got(run.path) if "seq" in entry}
    (run.path / "got.jsonl").unlink()
    account = read_account(run, "scripted")
    account.closed = ""
    replace_file(run.delivery_state("scripted"), msgspec.json.encode(account))
    monkeypatch.setattr(Scripted, "answer", Cursor(10))
    _deliver(run)
    again = {entry["seq"]: entry["id"] for entry in got(run.path) if "seq" in entry}
    assert sorted(again) == list(range(11, STEPS + 3))
    assert all(first[seq] == again[seq] for seq in again)


def test_lost_and_damaged_cursor_means_from_the_start(run: RunDirectory) -> None:
    """Without a readable cursor everything is delivered again: the tracker makes that harmless, nothing is missed."""
    _deliver(run)
    for damage in (b"", b"{torn", b"[]", None):
        (run.path / "got.jsonl").unlink()
        if damage is None:
            run.delivery_state("scripted").unlink()
        else:
            run.delivery_state("scripted").write_bytes(damage)
        _deliver(run)
        assert _steps(run) == list(range(STEPS))


def test_end_of_a_later_attempt_is_left_to_its_relay(run: RunDirectory) -> None:
    """A delivery of an earlier attempt's relay delivers what comes, and doesn't take the later attempt for ended: that
    one's relay may have values across ranks still to write."""
    delivery = Delivery(run, "scripted", say=lambda text: None, alone=False, attempt=1)
    writer = StreamWriter(run.stream(StreamName("rank", 0, 2)))
    writer.write(encode(Start(time=T0 + 50, attempt=2)))
    writer.write(encode(Finish(time=T0 + 51, status="finished", exit_code=0)))
    writer.release()
    assert all(delivery.step() is not None for _ in range(20))
    assert delivery.account.seq == STEPS + 4
    assert not delivery.account.closed
    delivery.close()
    own = Delivery(run, "scripted", say=lambda text: None, alone=False, attempt=2)
    while own.step() is not None:
        pass
    assert own.account.closed == "finished"


def test_a_check_asks_for_rows_while_the_tracker_is_open(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kept rows are counted before what is missing is delivered again, and after it before ``close``."""
    calls: list[str] = []

    def held(tracker: Scripted) -> int:
        assert calls[-1] != "close"
        calls.append("held")
        return 20 if calls.count("open") > 1 else 17

    _deliver(run)
    _plan(monkeypatch, lambda call, records: calls.append(call))
    monkeypatch.setattr(Scripted, "held", held)
    monkeypatch.setattr(Scripted, "verify", lambda tracker: Verified("all rows", cursor=Cursor(0)))
    account = read_account(run, "scripted")
    account.verify = True
    replace_file(run.delivery_state("scripted"), msgspec.json.encode(account))
    _deliver(run)
    assert calls[:3] == ["open", "held", "close"]
    assert calls[-2:] == ["held", "close"]
    verified = read_account(run, "scripted").verified
    assert (verified["missing"], verified["restored"], verified["unit"]) == (3, 3, "rows")


def test_later_records_reopen_a_closed_run(run: RunDirectory) -> None:
    """A continued run is delivered on from where it was, and closed again with its new status."""
    _deliver(run)
    writer = StreamWriter(run.stream(StreamName("rank", 0, 2)))
    writer.write(encode(Start(time=T0 + 50, attempt=2)))
    writer.write(encode(Metrics(step=STEPS, time=T0 + 51, values={"x": 1})))
    writer.write(encode(Finish(time=T0 + 52, status="finished", exit_code=0)))
    _deliver(run)
    assert _steps(run) == list(range(STEPS + 1))
    assert got(run.path)[-1] == {"closed": "finished", "exit_code": 0}
    assert read_account(run, "scripted").state["opened"] == 2


def test_kinds_that_a_tracker_lacks_are_skipped_and_said_once(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Undeclared kinds never reach the tracker; those that users care for are named once, and counted."""
    monkeypatch.setattr(Scripted, "accepts", frozenset({Start, Finish}))
    said: list[str] = []
    _deliver(run, said)
    assert _steps(run) == []
    assert read_account(run, "scripted").skipped == {"metrics": STEPS}
    assert {text for text in said if "metrics" in text} == {said[0]}


def test_running_run_is_waited_for(run: RunDirectory) -> None:
    """Without a finish record the delivery doesn't end, and what is appended later arrives."""
    stream = run.stream(StreamName("rank", 0, 1))
    lines = stream.read_bytes().splitlines(keepends=True)
    stream.write_bytes(b"".join(lines[:-1]))
    delivery = Delivery(run, "scripted", say=lambda text: None, alone=False)
    for _ in range(10):
        assert delivery.step() is not None
    assert _steps(run) == list(range(STEPS))
    with stream.open("ab") as file:
        file.write(lines[-1])
    deadline = time.monotonic() + 10
    while delivery.step() is not None:
        assert time.monotonic() < deadline
    assert got(run.path)[-1]["closed"] == "failed"


def test_address_of_the_run_is_told_as_soon_as_it_is_known(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link from the tracker's state is told before any record is written; a local command is not."""
    told: list[str] = []

    def plan(call: str, records: Sequence[Record]) -> None:
        if call == "write":
            told.append("write")

    _plan(monkeypatch, plan)
    monkeypatch.setattr(Scripted, "url", "http://127.0.0.1:5000/run/1")
    delivery = Delivery(run, "scripted", say=lambda text: None, tell=told.append, alone=False)
    delivery.step()
    assert told[:2] == ["http://127.0.0.1:5000/run/1", "write"]


def test_delivery_tells_one_outage_once_whatever_its_words(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused connections, then resets, then time-outs are one outage: one line, and one when it is over."""
    words = iter(["refused", "refused", "refused", "reset by peer", "timed out", "timed out", "502"])

    def plan(call: str, records: Sequence[Record]) -> None:
        if call == "write" and (word := next(words, "")):
            raise errors.Unavailable(word)

    _plan(monkeypatch, plan)
    said: list[str] = []
    _deliver(run, said)
    again = "; training goes on, its records wait in the journal, tried again by itself"
    assert said == [f"scripted: refused{again}", "scripted: delivering again"]


def test_delivery_that_cannot_close_says_so_and_says_when_it_could(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage at the very end is told, and its end too."""
    left = iter(range(5))

    def plan(call: str, records: Sequence[Record]) -> None:
        if call == "close" and next(left, None) is not None:
            raise errors.Unavailable("away")

    _plan(monkeypatch, plan)
    said: list[str] = []
    _deliver(run, said)
    assert [line.split(";")[0] for line in said] == ["scripted: away", "scripted: delivering again"]
    account = read_account(run, "scripted")
    assert (account.closed, account.error, account.last, account.failures) == ("failed", "", "", 0)


def test_limit_on_files_is_found_among_causes_that_go_in_a_circle() -> None:
    """An error that was raised again while it was handled is followed once."""
    first, second = RuntimeError("first"), RuntimeError("second")
    first.__cause__, second.__cause__ = second, first
    assert module._file_size_limit(first) == 0
    assert module._file_size_limit(None) == 0
