"""A training environment with this package alone, which `trackers setup` serves, beside one with all clients in it.

Both are made anew in the same way, from a package index. Starts and ends are taken in turn, from both in each round.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import ROOT, TRACKERS, Figure, main
from benchmarks.finishing import no_agent

LIKE_ONE = 1.25
"""Start and finish may take so many times what they take with all clients in the training environment."""
CLIENTS = ("wandb", "mlflow", "trackio", "tensorboard")
CHILD = """
import sys, time
began = time.perf_counter()
import trackers
run = trackers.init(sys.argv[1], project="bench", config={"lr": 1e-3})
run.log({"loss": 1.0})
started = time.perf_counter()
for step in range(1, 100):
    run.log({"loss": step / 7}, step=step)
ended = time.perf_counter()
run.finish()
print("took:", started - began, time.perf_counter() - ended)
"""


def act(*words: str | Path) -> str:
    """What a command prints, which must succeed."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{words[0]}: {done.stdout}{done.stderr}"[-2000:])
    return done.stdout


def environment(place: Path, wheels: Path, extras: str) -> Path:
    """The programs of a new environment with this package, of a folder with its wheel and those of its plug-ins."""
    act(sys.executable, "-m", "venv", place)
    act(place / "bin/pip", "install", "--quiet", "--find-links", wheels, f"trackers-relay{extras}")
    return place / "bin"


def megabytes(place: Path) -> float:
    """What the packages below a directory take on the disk, without pip."""
    kib = act("du", "-sk", "--exclude=pip", "--exclude=pip-*", place).split()[0]
    return int(kib) * 1024 / 1e6


def run(python: Path, trackers: str) -> tuple[float, float]:
    """Seconds of a run's start, import and first value included, and of its `finish`."""
    answer = act(python, "-c", CHILD, trackers)
    start, finish = next(line for line in answer.splitlines() if line.startswith("took:")).split()[1:]
    return float(start), float(finish)


def measure(quick: bool) -> Sequence[Figure]:
    """Medians over rounds, after a first run of each that starts its agent; and sizes."""
    here, rounds = Path.cwd(), 3 if quick else 21
    wheels = here / "wheels"
    plugins = [path.parent for path in ROOT.glob("plugins/*/pyproject.toml")]
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    act(*pip, "--wheel-dir", wheels, ROOT, *plugins)
    bare, full = environment(here / "bare", wheels, ""), environment(here / "full", wheels, f"[{','.join(CLIENTS)}]")
    act(bare / "trackers", "setup", *CLIENTS)
    made = here / ".local/share/trackers/environments"
    everything = environment(here / "everything", wheels, "[all]") if not quick else full
    times: dict[tuple[Path, str], list[tuple[float, float]]] = {}
    with no_agent("runtime"):
        for round_number in range(-2, rounds):
            for trackers in (",".join(TRACKERS), "mlflow"):
                for programs in (bare, full):
                    took = run(programs / "python", trackers)
                    if round_number >= 0:
                        times.setdefault((programs, trackers), []).append(took)
    figures = []
    for trackers in (",".join(TRACKERS), "mlflow"):
        for which, what in enumerate(("import + init + first log", "finish")):
            alone, together = (statistics.median(t[which] for t in times[p, trackers]) for p in (bare, full))
            title = "five trackers" if "," in trackers else trackers
            figures += [
                Figure(f"{what}, {title}, by made environments", alone, "s"),
                Figure("  by the one that trains", together, "s"),
                Figure("  the first against the second", alone / together, "x", at_most=LIKE_ONE),
            ]
    return [
        *figures,
        Figure("training's environment: this package alone", megabytes(bare.parent), "MB"),
        Figure("  with the clients of the four", megabytes(full.parent), "MB"),
        Figure("  with [all]", megabytes(everything.parent), "MB"),
        Figure("the four environments made for it", megabytes(made), "MB"),
    ]


if __name__ == "__main__":
    os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    main(measure, __doc__ or "")
