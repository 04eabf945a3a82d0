"""The kit's promises above files as the kernel shows them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import trackers_hwmon

from trackers.testing import check_devices


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two accelerators and a fan."""
    for number, (name, values) in enumerate(
        [("xe", {"temp1_input": "41500", "power1_average": "87250000"}), ("nct6775", {"temp1_input": "30000"}),
         ("xe", {"temp1_input": "", "power1_input": "12000000"})]
    ):  # fmt: skip
        home = tmp_path / f"hwmon{number}"
        home.mkdir()
        (home / "name").write_text(f"{name}\n")
        for file, value in values.items():
            (home / file).write_text(f"{value}\n")
    monkeypatch.setattr(trackers_hwmon, "HWMON", tmp_path)
    monkeypatch.setenv(trackers_hwmon.VARIABLE, "xe,habanalabs")
    return tmp_path


def test_values_are_the_kernels_and_its_loss_is_told(kernel: Path) -> None:
    """In °C and W, None where it tells none; a driver that is unloaded in mid-run is lost."""
    first, second = check_devices(trackers_hwmon.open_devices, lose=lambda: shutil.rmtree(kernel / "hwmon0"))
    assert (first.gpu.name, first.temp_c, first.power_w) == ("xe", 41.5, 87.25)
    assert (second.temp_c, second.power_w) == (None, 12.0)


def test_machine_without_is_none(kernel: Path) -> None:
    """No driver of these names: no source."""
    check_devices(trackers_hwmon.open_devices, absent=lambda: shutil.rmtree(kernel))
