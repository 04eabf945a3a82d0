"""Training's side of the relay: one that dies is started again, as often as makes sense, never given up for good."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.helpers import run_info
from trackers.journal.run_directory import RunDirectory
from trackers.relay import client as module
from trackers.relay.client import RESTARTS, RESTARTS_WITHIN_S, RelayClient, _names


class Clock:
    """The monotonic clock of the client, moved by hand."""

    now = 1000.0

    def __getattr__(self, name: str) -> Any:
        import time

        return (lambda: self.now) if name == "monotonic" else getattr(time, name)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    monkeypatch.setattr(module, "monotonic", lambda: found.now)
    return found


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Relays that end at once."""
    found: list[subprocess.Popen[bytes]] = []

    def start(*arguments: Any, **more: Any) -> subprocess.Popen[bytes]:
        found.append(subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"]))
        found[-1].wait()
        return found[-1]

    monkeypatch.setattr(module.helper_process, "start", start)
    return found


def client(tmp_path: Path) -> RelayClient:
    run = RunDirectory(tmp_path / "run")
    run.make()
    return RelayClient(run, run_info(run.path), ["json"])


def test_relay_that_dies_at_once_again_and_again_is_left_alone_for_a_while(
    tmp_path: Path, clock: Clock, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten deaths within minutes are too many: one line says so, and later it is tried again."""
    relay = client(tmp_path)
    relay.start()
    for _ in range(50):
        relay.look_after()
        clock.now += 1
    assert len(started) == RESTARTS + 1
    assert capsys.readouterr().err.count("it is tried again later") == 1
    clock.now += RESTARTS_WITHIN_S
    relay.look_after()
    assert len(started) == RESTARTS + 2


@pytest.mark.slow
def test_relay_that_dies_now_and_then_is_started_again_for_ever(
    tmp_path: Path, clock: Clock, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """A hundred deaths in a week are each followed by a start."""
    relay = client(tmp_path)
    relay.start()
    for _ in range(100):
        clock.now += 6000
        relay.look_after()
    assert len(started) == 101
    assert capsys.readouterr().err == ""


def test_relay_that_cannot_be_started_is_tried_again(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No process or descriptor is left at the moment: said once, and started when there is one."""
    tries: list[int] = []

    def start(*arguments: Any, **more: Any) -> Any:
        tries.append(len(tries))
        if len(tries) < 3:
            raise OSError(11, "Resource temporarily unavailable")
        return subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)

    monkeypatch.setattr(module.helper_process, "start", start)
    relay = client(tmp_path)
    relay.start()
    for _ in range(5):
        clock.now += 1
        relay.look_after()
    assert len(tries) == 3
    assert capsys.readouterr().err.count("Resource temporarily unavailable") == 1
    relay._process.stdin.close()
    relay._process.wait()


def both(**state: str) -> dict[str, dict[str, Any]]:
    """The same state of two deliveries."""
    return {name: {**state, "time": 1.0} for name in ("json", "mlflow")}


@pytest.mark.parametrize(
    ("states", "told"),
    [
        ({"mlflow": {"last": "refused", "time": 1.0}}, " (json: still starting; mlflow: refused); the relay goes on"),
        (both(error="no login", last="old"), " (no login); the relay goes on"),
        ({}, " (still starting); the relay goes on"),
        (both(), "; the relay goes on"),
    ],
)
def test_finish_says_why_trackers_lag(
    states: dict[str, dict[str, Any]], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the reason is known; one for all of them where it is the same."""
    run = client(tmp_path)._run
    for name, state in states.items():
        run.delivery_state(name).write_bytes(msgspec.json.encode({"tracker": name, **state}))
    relay = RelayClient(run, run_info(run.path), ["json", "mlflow"])
    relay._process = types.SimpleNamespace(poll=lambda: None, wait=lambda _: None, returncode=0, pid=0)
    relay.finish(0.0, quiet=True)
    assert f"json, mlflow: not delivered within 0 s{told}" in capsys.readouterr().err


@pytest.mark.parametrize("quiet", [False, True])
def test_finish_that_was_waited_for_ends_with_what_was_delivered(
    quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, with the next command; a delivery that stopped isn't named, quiet says nothing."""
    run = client(tmp_path)._run
    run.delivery_state("mlflow").write_bytes(msgspec.json.encode({"tracker": "mlflow", "time": 1.0, "stopped": True}))
    relay = RelayClient(run, run_info(run.path), ["json", "mlflow"])
    relay._process = types.SimpleNamespace(poll=lambda: None, wait=lambda _: None, returncode=0, pid=0)
    monkeypatch.setattr(relay, "look_after", lambda: None)
    monkeypatch.setattr("trackers.relay.client.PATIENT_S", 0.0)
    standing = iter([{"json": 0.0}, {"json": 0.5}])
    monkeypatch.setattr(relay, "_lagging", lambda sizes, closed: next(standing, {}))
    relay.finish(30.0, quiet)
    line = f"trackers: json: delivered; to see the run: trackers show {run.quoted}"
    assert capsys.readouterr().err.splitlines() == ([] if quiet else [line])


def test_finish_that_waits_in_vain_says_so_in_one_line(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a pipe, a log or a notebook nothing is said before: what waits, why, and the next command stand at the end."""
    relay = client(tmp_path)
    relay._process = types.SimpleNamespace(poll=lambda: None, wait=lambda _: None)
    monkeypatch.setattr(relay, "look_after", lambda: None)
    clock.sleep = lambda seconds: setattr(clock, "now", clock.now + 1.0)  # type: ignore[attr-defined]
    relay.finish(17.0, quiet=False)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("trackers: json: not delivered within 17 s (still starting); the relay goes on; to deliver")
    assert line.endswith(f"trackers sync {relay._run.quoted}")


@pytest.mark.parametrize(("lagging", "shown"), [
    ({"mlflow": 0.0}, "mlflow"), ({"mlflow": 0.0, "wandb": 0.425}, "mlflow, wandb (42%)"),
    ({"json": 1.0, "csv": 0.001}, "json, csv"),
])  # fmt: skip
def test_tracker_that_has_nothing_yet_or_all_is_named_without_a_share(lagging: dict[str, float], shown: str) -> None:
    """Who waits for a server that is away doesn't read "0%"; nor "100%" where only the run's end isn't told yet."""
    assert _names(lagging) == shown
