"""What README.md promises, tried as a new user would: a new environment, its commands, its program: ``make first-try``.

Each case has a Python, an environment and a package index of its own kind. The program is README's, told to log to all
five trackers; every value is then looked for in each store, read by its vendor's means.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests import ROOT
from tests.e2e.test_docs import blocks
from tests.stores import read_json, read_mlflow, read_tensorboard, read_trackio, read_wandb_file
from trackers.journal.run_directory import find_runs
from trackers.testing import Stored

TRACKERS = ("json", "wandb", "trackio", "tensorboard", "mlflow")
WITH_PACKAGES = TRACKERS[1:]
STEPS = 1000
PROGRAM_HAS = '"json,tensorboard,mlflow"'
PYTHONS = os.environ.get("FIRST_TRY_PYTHONS", "").split()
NOT_A_USER_S = ("TRACKER_", "WANDB_", "PIP_REQUIRE", "PYTHON", "TRACKERS_")
"""Variables of the tests that a user's shell hasn't."""


class Case(NamedTuple):
    """A new user's machine.

    extras: what is installed with the package. pins: what the project has besides. setup: whether the trackers'
    packages are in environments of their own. python: with which it is made; "": this one. connected: whether there
    is a package index, or else a folder of wheels and no network at all.
    """

    extras: str = f"[{','.join(WITH_PACKAGES)}]"
    pins: tuple[str, ...] = ()
    setup: bool = False
    python: str = ""
    connected: bool = True


CASES = {
    **{f"wandb {version}": Case(pins=(f"wandb=={version}",)) for version in ("0.26.1", "0.28.2", "0.30.0")},
    "bare": Case(extras="", setup=True),
    **{
        f"wandb {version} pinned": Case(extras="", pins=(f"wandb=={version}",), setup=True)
        for version in ("0.18.7", "0.22.3")
    },
    "no internet": Case(extras="", setup=True, connected=False),
    **{f"python {python}": Case(python=python) for python in PYTHONS},
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as an index has it."""
    out = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(out), str(ROOT)], check=True, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home directory, in which the user works; it takes gigabytes, and is removed."""
    place = tmp_path / "user"
    place.mkdir()
    for name in [name for name in os.environ if name.startswith(NOT_A_USER_S)]:
        monkeypatch.delenv(name)
    for name, value in {
        "HOME": str(place), "XDG_DATA_HOME": str(place / ".local/share"), "XDG_STATE_HOME": str(place / ".local/state"),
        "XDG_CACHE_HOME": str(place / ".cache"), "XDG_CONFIG_HOME": str(place / ".config"),
        "TRACKIO_DIR": str(place / "trackio"), "WANDB_MODE": "offline",
        "TRACKER_FINISH_TIMEOUT": "1200",  # a user's machine isn't as busy as one that tests
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place)
    yield place
    shutil.rmtree(place, ignore_errors=True)


def act(*words: str | Path, alone: bool = False) -> str:
    """What a command prints, which must succeed.

    Args:
        alone: without any network but this machine's own.
    """
    command = [str(word) for word in words]
    if alone:
        command = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def new_environment(python: str, place: Path) -> Path:
    """The programs of a new environment."""
    act(python or sys.executable, "-m", "venv", place)
    return place / "bin"


def install(case: Case, wheel: Path, home: Path) -> Path:
    """Do what README.md says; the programs of the environment that trains."""
    programs = new_environment(case.python, home / "venv")
    if case.connected:
        act(programs / "pip", "install", "--quiet", f"{wheel}{case.extras}", *case.pins)
        if case.setup:
            act(programs / "trackers", "setup", *WITH_PACKAGES)
        return programs
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("needs root, unshare and ip")
    connected = new_environment(case.python, home / "connected") / "pip"
    act(connected, "install", "--quiet", wheel)
    act(connected, "download", "--quiet", "--dest", "wheels", wheel)
    act(connected.parent / "trackers", "setup", *WITH_PACKAGES, "--download", "wheels")
    shutil.rmtree(home / "connected")
    found = ["--no-index", "--find-links", "wheels"]
    act(programs / "pip", "install", "--quiet", *found, f"trackers-relay{case.extras}", alone=True)
    act(programs / "trackers", "setup", *WITH_PACKAGES, "--from", "wheels", alone=True)
    return programs


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", CASES)
def test_first_try_puts_every_value_into_five_trackers(name: str, wheel: Path, home: Path) -> None:
    """README's commands in a new environment, its program once, and all five stores have all of it."""
    case = CASES[name]
    programs = install(case, wheel, home)
    shown = blocks((ROOT / "README.md").read_text("utf-8"))
    text = next(block.body for block in shown if block.tag("file") is not None)
    assert PROGRAM_HAS in text
    Path("first.py").write_text(text.replace(PROGRAM_HAS, repr(",".join(TRACKERS))))
    said = act(programs / "python", "first.py", alone=not case.connected)
    listed = act(programs / "trackers", "show", "latest")
    for tracker in TRACKERS:
        assert any(line.split()[:2] == [tracker, "delivered,"] for line in listed.splitlines()), said + listed

    (run,) = find_runs(home / "runs")
    info = run.read_info()
    stores: dict[str, Stored] = {
        "json": read_json(info),
        "wandb": read_wandb_file(info),
        "trackio": read_trackio(info),
        "tensorboard": read_tensorboard(info),
        "mlflow": read_mlflow(info, uri=f"sqlite:///{home}/mlflow.db"),
    }
    assert set(stores) == set(TRACKERS)
    for tracker, stored in stores.items():
        for metric, values in {
            "train_loss": [1.0 / (step + 1) for step in range(STEPS)],
            "learning_rate": [1e-3] * STEPS,
        }.items():
            known = {"train_loss": "loss", "learning_rate": "lr"}[metric] if tracker == "json" else metric
            exact = [float(np.float32(value)) for value in values] if tracker == "tensorboard" else values
            found = [(point.step, point.value) for point in stored.metrics.get(known, stored.metrics.get(metric, []))]
            assert found == list(enumerate(exact)), f"{tracker}: {metric}"
        results = {key.removeprefix("final/"): value for key, value in (stored.summary or {}).items()}
        assert results["best_val_loss"] == pytest.approx(1 / STEPS, rel=1e-6), tracker
