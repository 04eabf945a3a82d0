"""Each metric's name stands in one group."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackers.metrics import groups, roles
from trackers.metrics.groups import GROUPS, group_of, grouped


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("training", ["train_loss", "learning_rate", "sparsity", "perf/tokens_per_sec", "interval", "contest", "value",
                      "throughput per GPU (TFLOP/s/GPU)", "tokens_per_second_per_gpu", "throughput/tflops/device",
                      "lm loss", "memory_loss", "processed_tokens", "gpu-hours"]),
        ("validation", ["val_loss", "val/acc", "lm loss validation", "eval_loss", "loss/val", "valLoss",
                        "best_val_loss", "lm loss validation ppl", "test_accuracy"]),
        ("gpu", ["gpu/compute_util_avg", "system.gpu.0.memory", "system/gpu_3_utilization_percentage", "gpu.0.temp",
                 "power/gpu", "iter-energy/gpu", "memory/mem-allocated-gigabytes", "hip mem usage", "gpu0/temp"]),
        ("system", ["system.cpu", "system.memory", "system/cpu_utilization_percentage", "cpu/percent", "_runtime",
                    "system.proc.cpu.threads", "system.network.sent"]),
        ("final", ["final/best_val_loss", "final/gpu"]),
    ],
)  # fmt: skip
def test_names_of_the_documents_stand_where_people_look(group: str, names: list[str]) -> None:
    """The names that the documents and the vendors use are found in their group."""
    assert {name: group_of(name) for name in names} == dict.fromkeys(names, group)


@pytest.mark.slow
@given(st.lists(st.text(max_size=20)))
def test_no_name_stands_in_two_groups(names: list[str]) -> None:
    """Whatever the names, each stands in exactly one group and none is lost."""
    found = grouped(names)
    assert tuple(found) == GROUPS
    assert sorted(name for group in found.values() for name in group) == sorted(set(names))


@pytest.mark.parametrize("odd", [10**400, -(10**400), float("nan"), float("inf"), True, "9", None])
def test_setting_that_no_float_holds_is_not_one(odd: Any) -> None:
    """Settings of another program may hold any number: what isn't finite says nothing, and the next name counts."""
    assert groups.steps({"max_steps": odd, "trainer": {"max_iters": odd}}) is None
    assert groups.steps({"max_steps": odd, "n_steps": 7}) == 7
    assert roles.setting({"global_batch_size": odd}, roles.BATCHES) is None
