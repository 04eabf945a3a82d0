"""Tensors of torch, logged as they are."""

from __future__ import annotations

import weakref

import pytest
import torch

from tests.training.test_run import metrics
from trackers.training.run import Run


def test_tensor_may_be_a_step(run: Run) -> None:
    """One element, an integer."""
    run.log({"a": 1.0}, step=10)
    run.log({"a": 1.0}, step=torch.tensor(15))
    run.log({"a": 1.0}, step=torch.tensor([20]))
    assert [record.step for record in metrics(run)] == [10, 15, 20]


def test_tensors_of_one_element_are_numbers(run: Run) -> None:
    """Of any kind, also such that have a gradient; at first and once their names are known."""
    values = {
        "number": torch.tensor(0.25), "one": torch.tensor([7]), "bf16": torch.tensor(0.5, dtype=torch.bfloat16),
        "gradient": torch.tensor(1.25, requires_grad=True),
    }  # fmt: skip
    run.log(values, step=1)
    run.log(values, step=2)
    for record in metrics(run):
        assert record.values == {"number": 0.25, "one": 7, "bf16": 0.5, "gradient": 1.25}
        assert type(record.values["one"]) is int


@pytest.mark.parametrize("value", [torch.zeros(2, 2), torch.tensor(1.0, device="meta")], ids=["many", "meta"])
def test_tensor_without_one_value_is_named_once(
    run: Run, value: torch.Tensor, capsys: pytest.CaptureFixture[str]
) -> None:
    """It costs only itself: the values beside it are there."""
    for step in range(3):
        run.log({"bad_one": value, "good": step}, step=step)
    assert [record.values for record in metrics(run)] == [{"good": step} for step in range(3)]
    assert len([line for line in capsys.readouterr().err.splitlines() if "bad_one" in line]) == 1


def test_log_lets_go_of_tensors(run: Run) -> None:
    """A tensor holds the graph that it was calculated by: none is kept, of known names and of new ones."""
    left = []
    for step in range(200):
        value = torch.tensor(0.5, requires_grad=True) * 2
        left.append(weakref.ref(value))
        run.log({"loss": value, f"new/{step}": value}, step=step)
        run.log({"loss": value}, step=step)
    del value
    assert [one for one in left if one() is not None] == []
