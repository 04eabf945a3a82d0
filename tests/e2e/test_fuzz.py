"""Damaged files of every format end in one line, soon, and in little memory: the short form of ``make fuzz``."""

from __future__ import annotations

import copy
import random
import sys
from pathlib import Path

import pytest

from tests import ROOT, forked
from tests.fuzz import mutate
from tests.fuzz.targets import TARGETS, USUAL
from trackers.readers.registry import BUILT_IN


def test_every_reader_is_fuzzed() -> None:
    """A reader that is built in has a target of its own, and so has what a run keeps for itself."""
    assert set(BUILT_IN) - {"run"} <= set(TARGETS)
    assert {"run.json", "journal", "packed", "delivery", "archive", "lease", "deliver"} <= set(TARGETS)
    assert {"kconfig", "yaml", "bombs"} <= set(TARGETS)
    assert {"mlflow-rest", "mlflow-store", "wandb-cache", "reads-cache"} <= set(TARGETS)


@pytest.mark.slow
def test_input_is_the_same_whatever_came_before_it() -> None:
    """What is put into one input isn't changed by the next: a number names its input."""
    before = copy.deepcopy(mutate.ODD)
    for number in range(3000):
        dice = random.Random(number)
        value: object = {"a": [1, {"b": 2}], "c": "x"}
        for _ in range(2):
            value = mutate.json_value(value, dice)
    assert before == mutate.ODD


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: limits of memory")
def test_damaged_files_end_in_one_line(tmp_path: Path) -> None:
    """A few damaged inputs of each format: no traceback, none above 5 s or 500 MB; undamaged ones are read whole."""
    undamaged = tmp_path / "seeds"
    code = "import pathlib, sys; from tests.fuzz import seeds; seeds.make(pathlib.Path(sys.argv[1]))"
    forked.run([sys.executable, "-c", code, str(undamaged)], cwd=ROOT, check=True)
    command = [sys.executable, "-m", "tests.fuzz", "--count", "4", "--seed", "1", "--seeds", str(undamaged)]
    done = forked.run(command, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    told = {line.partition(":")[0] for line in done.stdout.splitlines() if " inputs, " in line}
    assert told == set(USUAL)
