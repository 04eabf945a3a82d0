"""Which GPUs are the job's, by the rules of CUDA's, ROCm's and HIP's variables."""

from __future__ import annotations

import pytest

from trackers.hardware.gpus.base import Gpu
from trackers.hardware.gpus.detect import Visible, select_gpus, visible_gpus

GPUS = [Gpu(vendor="nvidia", index=i, label=str(i), uuids=(f"GPU-{i}aa0-c8d9",)) for i in range(4)]
MIG = [
    Gpu(
        vendor="nvidia",
        index=0,
        label="0",
        uuids=("GPU-0aa0-c8d9",),
        instances=tuple(
            Gpu(vendor="nvidia", index=0, label=f"0.mig.{j}", uuids=(f"MIG-{j}bb0-1111",)) for j in range(2)
        ),
    ),
    GPUS[1],
]
AMD = [Gpu(vendor="amd", index=i, label=str(i), uuids=(f"GPU-4b2c1a9f8d3e6f7{i}",)) for i in range(4)]


@pytest.mark.parametrize(
    ("value", "labels"),
    [
        (None, "0123"),
        ("", ""),
        ("-1", ""),
        ("NoDevFiles", ""),
        ("2", "2"),
        ("2,1", "21"),
        (" 0 , 3 ", "03"),
        ("0,2,-1,1", "02"),
        ("0,9,1", "0"),
        ("1,1", "1"),
        ("GPU-2aa0-c8d9", "2"),
        ("gpu-2AA0", "2"),
        ("GPU-2", "2"),
        ("GPU-", ""),
        ("GPU-7", ""),
        ("3,GPU-1aa0,0", "310"),
    ],
)
def test_cuda_variable_chooses(value: str | None, labels: str) -> None:
    """Indices and UUIDs, also cut short, in the order given; the list ends at the first that names no one GPU."""
    assert [gpu.label for gpu in select_gpus(GPUS, "job", Visible(cuda=value))] == list(labels)


@pytest.mark.parametrize(
    ("value", "labels"),
    [
        (None, ["0.mig.0", "0.mig.1", "1"]),
        ("0", ["0.mig.0", "0.mig.1"]),
        ("MIG-1bb0-1111", ["0.mig.1"]),
        ("MIG-0,1", ["0.mig.0", "1"]),
        ("MIG-1bb0-1111,MIG-1", ["0.mig.1"]),
    ],
)
def test_mig_instances_stand_for_their_gpu(value: str | None, labels: list[str]) -> None:
    """A GPU in MIG mode is its instances, and one of them can be chosen by its own UUID."""
    assert [gpu.label for gpu in select_gpus(MIG, "job", Visible(cuda=value))] == labels


@pytest.mark.parametrize(
    ("chosen", "labels"),
    [
        (Visible(), "0123"),
        (Visible(rocr="1,2,3", hip="0,2"), "13"),
        (Visible(rocr="GPU-4b2c1a9f8d3e6f72,0"), "20"),
        (Visible(cuda="3"), "3"),
        (Visible(cuda="3", hip="1"), "1"),
        (Visible(rocr=""), ""),
        (Visible(hip="-1"), ""),
    ],
)
def test_amd_variables_choose_one_after_the_other(chosen: Visible, labels: str) -> None:
    """ROCR chooses among all, HIP (else CUDA's) among what is left, by its place there."""
    assert [gpu.label for gpu in select_gpus(AMD, "job", chosen)] == list(labels)


def test_scope_node_takes_all() -> None:
    """With TRACKER_GPU_SCOPE=node the variables don't matter."""
    assert len(select_gpus(GPUS, "node", Visible(cuda=""))) == 4


def test_helper_takes_the_jobs_choice_not_its_own() -> None:
    """A helper process sees no GPU; what training saw is passed on, also that it had no variable at all."""
    own = {"CUDA_VISIBLE_DEVICES": "", "TRACKER_JOB_PASSED": "1"}
    assert visible_gpus(own) == Visible()
    assert visible_gpus({**own, "TRACKER_JOB_CUDA_VISIBLE_DEVICES": "1"}) == Visible(cuda="1")
    assert visible_gpus({**own, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == Visible(order="PCI_BUS_ID")
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "2", "ROCR_VISIBLE_DEVICES": "0"}) == Visible(cuda="2", rocr="0")
