"""Which peak utilisation is measured by: the precision is the model's, autocast's, torch's setting's, or the user's."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from trackers.instruments import peaks
from trackers.instruments.peaks import Peak

FP32, TF32, BF16, FP16, FP8 = 66.9, 494.7, 989.4, 989.4, 1978.9


@pytest.fixture(autouse=True)
def h100(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A GPU by name; torch's settings are put back."""
    monkeypatch.setattr(peaks, "cuda_in_use", lambda: SimpleNamespace(get_device_name=lambda: "NVIDIA H100 80GB HBM3"))
    dtype = torch.get_autocast_dtype("cuda")
    yield
    multiply_in("none")
    torch.set_autocast_enabled("cuda", False)
    torch.set_autocast_dtype("cuda", dtype)


def multiply_in(precision: str) -> None:
    """Torch's setting of what float32 is multiplied in: "tf32", or "none"."""
    matmul = torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):  # torch 2.9
        matmul.fp32_precision = precision
    else:
        matmul.allow_tf32 = precision == "tf32"


def autocast(dtype: torch.dtype | None) -> None:
    """What ``torch.autocast("cuda", dtype)`` sets; it needs a GPU itself."""
    torch.set_autocast_enabled("cuda", dtype is not None)
    if dtype is not None:
        torch.set_autocast_dtype("cuda", dtype)


@pytest.fixture
def said() -> list[str]:
    """What was said."""
    return []


@pytest.mark.parametrize(
    ("dtype", "setting", "cast", "given", "expected"),
    [
        (torch.float32, "none", None, None, FP32),
        (torch.float32, "tf32", None, None, TF32),
        (torch.float32, "none", torch.bfloat16, None, BF16),
        (torch.float32, "tf32", torch.float16, None, FP16),
        (torch.bfloat16, "none", None, None, BF16),
        (torch.float16, "none", None, None, FP16),
        (torch.float32, "none", torch.bfloat16, "fp8", FP8),
        (torch.bfloat16, "none", None, "fp32", FP32),
    ],
)
def test_peak_is_of_the_precision_that_is_used(
    dtype: torch.dtype, setting: str, cast: torch.dtype | None, given: str | None, expected: float, said: list[str]
) -> None:
    """The user's word, else the parameters' type, else autocast's in a call of the first step, else torch's setting."""
    multiply_in(setting)
    model = nn.Linear(2, 2, dtype=dtype)
    found = Peak([model], given, said.append)
    for kind in (cast, None):  # the second call is an evaluation's, without autocast
        autocast(kind)
        model(torch.ones(1, 2, dtype=dtype))
    assert found.settle() == expected
    assert said == []
    assert not model._forward_pre_hooks


@pytest.mark.slow
def test_compiled_model_is_looked_at_from_outside_alone(said: list[str]) -> None:
    """A compiled model is seen where it is called as such; of a layer alone it is said that it isn't."""
    model = nn.Sequential(nn.Linear(2, 2))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    outside, of_the_model, inside = (Peak(part, None, said.append) for part in (compiled, model, model[0]))
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    torch.set_autocast_enabled("cuda", True)
    compiled(torch.ones(1, 2))
    assert outside.settle() == of_the_model.settle() == BF16
    assert said == []
    assert inside.settle() == FP32
    assert [line.partition(",")[0] for line in said] == ["loop: the model is compiled"]
    assert 'give run.loop precision="bf16"' in said[0]
    compiled(torch.ones(1, 2))
    assert not model._forward_pre_hooks


class Net(nn.Module):
    """A model whose code is the user's: torch compiles none of its own layers alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs)  # type: ignore[no-any-return]


def test_model_compiled_in_place_is_seen(said: list[str]) -> None:
    """``model.compile(fullgraph=True)`` has nothing of ours in its graph, and the model is called as before."""
    model = Net()
    found = Peak(model, None, said.append)
    model.compile(backend="eager", fullgraph=True)
    autocast(torch.bfloat16)
    model(torch.ones(1, 2))
    assert found.settle() == BF16
    assert said == []


def test_without_a_model_the_precision_is_a_guess_and_said(said: list[str]) -> None:
    """No model, no precision: torch's setting, with a line that names both arguments."""
    assert Peak(None, None, said.append).settle() == FP32
    (line,) = said
    assert "there is no model=" in line
    assert "precision=" in line


def test_closed_before_the_first_step(said: list[str]) -> None:
    """The model is let go of."""
    model = nn.Linear(2, 2)
    Peak(model, None, said.append).close()
    assert not model._forward_pre_hooks


def test_unknown_device_has_no_peak(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    """It is said, with the option that sets one; a processor has none, in silence."""
    monkeypatch.setattr(peaks, "cuda_in_use", lambda: SimpleNamespace(get_device_name=lambda: "Abacus 3"))
    assert Peak(nn.Linear(2, 2, dtype=torch.bfloat16), None, said.append).settle() is None
    assert said == ["loop: no peak is known for Abacus 3: no utilisation is logged; TRACKER_PEAK_TFLOPS sets one"]
    monkeypatch.setattr(peaks, "cuda_in_use", lambda: None)
    assert Peak(nn.Linear(2, 2), None, said.append).settle() is None
    assert len(said) == 1
