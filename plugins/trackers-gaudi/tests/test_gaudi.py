"""Readings of hl-smi's outputs, and the conformance kit above a program in its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from trackers_gaudi import GaudiSource, open_devices, parse

from trackers.hardware.gpus.base import Opening, SourceLost
from trackers.testing import check_devices

OUTPUT = """\
0, 3, 01P0-HL2080A0-15-ABCD12-13-08-04, HL-225, 87, 70912, 98304, 41, 412
1, 5, 01P0-HL2080A0-15-ABCD12-13-08-05, HL-225, 0, 768, 98304, 29, N/A
"""
WITH_UNITS = "0, 3, 01P0-HL2080A0-15-ABCD12-13-08-04, HL-225, 87 %, 70912 MiB, 98304 MiB, 41 C, 412 W\n"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program called hl-smi on PATH that prints what lies beside it."""
    path = tmp_path / "bin/hl-smi"
    path.parent.mkdir()
    path.write_text('#!/bin/sh\ncat "$(dirname "$0")/output" || exit 3\n')
    path.chmod(0o755)
    (path.parent / "output").write_text(OUTPUT)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    return path


def test_kit_passes_whatever_goes_away(program: Path) -> None:
    """The kit's promises, with hl-smi gone before and while it is asked."""
    readings = check_devices(open_devices, absent=program.unlink)
    assert [reading.gpu.label for reading in readings] == ["0", "1"]


def test_kit_passes_when_hl_smi_fails(program: Path) -> None:
    """hl-smi that fails in mid-run is a driver that is gone."""
    check_devices(open_devices, lose=(program.parent / "output").unlink)


@pytest.mark.parametrize("text", [OUTPUT, "warning: firmware, old\n" + WITH_UNITS + OUTPUT.splitlines()[1]])
def test_values_are_in_si_units(text: str) -> None:
    """Percent as a share, MiB as bytes; what isn't told is None; units that older ones print don't matter."""
    first, second = GaudiSource(Opening(), lambda: parse(text)).read()
    assert (first.compute_frac, first.memory_used_bytes, first.temp_c, first.power_w) == (
        0.87,
        70912 << 20,
        41.0,
        412.0,
    )
    assert second.power_w is None
    assert second.memory_total_bytes == 98304 << 20


def test_job_sees_the_modules_that_it_was_given() -> None:
    """HABANA_VISIBLE_MODULES chooses by module number, unless all of the node are wanted."""

    def source(scope: str, modules: str) -> list[str]:
        opening = Opening(scope=scope, environ={"HABANA_VISIBLE_MODULES": modules})
        return [gpu.label for gpu in GaudiSource(opening, lambda: parse(OUTPUT)).gpus]

    assert source("job", "5") == ["1"]
    assert source("job", "all") == ["0", "1"]
    assert source("node", "5") == ["0", "1"]
    with pytest.raises(SourceLost):
        source("job", "7")


def test_hl_smi_is_asked_every_two_seconds() -> None:
    """Between two answers the last one stays."""
    now, asked = [0.0], []

    def ask() -> list[dict[str, str]]:
        asked.append(now[0])
        return parse(OUTPUT)

    source = GaudiSource(Opening(), ask, lambda: now[0])
    for now[0] in (0.5, 1.0, 2.0, 3.0):
        source.read()
    assert asked == [0.0, 2.0]
