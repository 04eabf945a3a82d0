"""Frameworks' own W&B loggers, unchanged, leave here what they leave with W&B's client: two tiny epochs each."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.as_wandb import framework_scripts
from tests.as_wandb.test_same_as_wandb import Left, is_result, left_by, same

TIMES = re.compile(r"runtime|per_sec|fps|start_time|time_elapsed|flos|\(ms\)")
"""Names of what isn't the same twice."""

FILLED = {"trainer/global_step", "train/global_step"}
"""Axes that W&B's client repeats in rows that have no such value (``step_sync``)."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[Left]]]:
    """What each script's run left, by who ran it."""
    return left_by(framework_scripts.__name__, tmp_path_factory.mktemp("frameworks"))


@pytest.mark.parametrize("name", framework_scripts.SCRIPTS)
def test_logger_leaves_the_same_values(name: str, found: dict[str, dict[str, list[Left]]]) -> None:
    """Every value at its step, media, configuration, artifacts of models, and how the run ended."""
    (their,), (our,) = found[name]["real"], found[name]["ours"]
    agree(their, our)
    assert bool(our.artifacts) == (name not in ("fabric", "huggingface", "accelerate"))


def agree(their: Left, our: Left) -> None:
    """A run of W&B's client and one of this package have the same."""
    wanted = {key: value for key, value in their.values.items() if key in our.values or key[0] not in FILLED}
    assert wanted.keys() == our.values.keys()
    pairs = {key: (value, our.values[key]) for key, value in wanted.items() if not TIMES.search(key[0])}
    assert {key: pair for key, pair in pairs.items() if not same(*pair)} == {}
    assert {(key.removesuffix("_table"), step): kind for (key, step), kind in their.media.items()} == our.media
    assert same(lasting(their.config), lasting(our.config))
    results = {key: value for key, value in our.summary.items() if not TIMES.search(key)}
    assert {key: value for key, value in results.items() if not is_result(their.summary, key, value)} == {}
    assert their.identity["tags"] == our.identity["tags"]
    assert our.status == "finished"


def lasting(values: dict[str, Any]) -> dict[str, Any]:
    """A configuration without times and addresses of objects."""
    return {
        key: re.sub(r"0x[0-9a-f]+", "0x", value) if isinstance(value, str) else value
        for key, value in values.items()
        if not TIMES.search(key)
    }
