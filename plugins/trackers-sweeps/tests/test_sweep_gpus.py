"""GPUs that runs of a sweep get."""

from __future__ import annotations

from pathlib import Path

import pytest
from trackers_sweeps import gpus as module
from trackers_sweeps.gpus import gpus

from trackers.errors import UsageError


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own choice of GPUs isn't seen."""
    for name in module.VARIABLES:
        monkeypatch.delenv(name, raising=False)


def cards(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Make this a machine with so many NVIDIA GPUs, as its driver's files show them."""
    for number in range(count):
        Path("gpus", f"0000:0{number}:00.0").mkdir(parents=True)
    Path("nvidiactl").touch()
    monkeypatch.setattr(module, "NVIDIA_DEVICE", Path("nvidiactl"))
    monkeypatch.setattr(module, "NVIDIA_CARDS", Path("gpus"))


def test_gpus_are_dealt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the job, as many as asked for each; none where there are none."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3,GPU-7")
    assert gpus("auto", 1) == [["2"], ["3"], ["GPU-7"]]
    assert gpus("auto", 2) == [["2", "3"]]
    assert gpus("0, 1", 2) == [["0", "1"]]
    assert gpus("none", 1) == []
    with pytest.raises(UsageError, match="3 GPUs are there, and each run gets 4"):
        gpus("auto", 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus("auto", 1) == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1c2,1,-1,2")
    assert gpus("auto", 1) == [["MIG-1c2"], ["1"]]


def test_all_gpus_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing says which, all that the driver shows; those that are left over are in no share."""
    cards(monkeypatch, 3)
    assert gpus("auto", 1) == [["0"], ["1"], ["2"]]
    assert gpus("auto", 2) == [["0", "1"]]


def test_gpus_that_the_machine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number beyond the machine's is refused; where it can't be known, a line says so, and the run gets it."""
    said: list[str] = []
    assert gpus("7,GPU-8a", 1, said.append) == [["7"], ["GPU-8a"]]
    assert said.pop() == "no NVIDIA GPU is seen on this machine: whether it has 7, GPU-8a isn't known"
    cards(monkeypatch, 2)
    assert gpus("1,0", 1, said.append) == [["1"], ["0"]]
    assert gpus("GPU-8a6b,MIG-1/2/3,0:1", 3, said.append) == [["GPU-8a6b", "MIG-1/2/3", "0:1"]]
    assert not said
    with pytest.raises(UsageError, match=r"^there is no GPU 2, 9: this machine has GPUs 0 to 1$"):
        gpus("2,0,9", 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert gpus("1,0", 1, said.append) == [["1"], ["0"]]
    assert said == ["GPU 0 isn't among those of this job: CUDA_VISIBLE_DEVICES has 1"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("all", "unknown GPU 'all': --gpus takes auto, none, or numbers as 0,1"),
        ("-1", "unknown GPU '-1'"),
        ("1.5", "unknown GPU '1.5'"),
        ("", "no GPUs are named"),
        (" , ", "no GPUs are named"),
        ("0,1,0", "GPU 0 is given twice"),
        ("0", "1 GPUs are there, and each run gets 2: --gpus-per-run 1"),
    ],
)
def test_wrong_gpus_are_one_line(given: str, said: str) -> None:
    """A word that no GPU is called is no name of one."""
    with pytest.raises(UsageError) as raised:
        gpus(given, 2)
    assert str(raised.value).startswith(said)
