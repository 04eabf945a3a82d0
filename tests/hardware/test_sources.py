"""The vendors' real libraries above stand-ins for their drivers: units, what is missing, what breaks."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import psutil
import pynvml
import pytest

from tests import ROOT
from tests.fakes.gpu_drivers.standin import Drivers
from tests.fakes.gpu_drivers.tree import plant
from trackers.errors import UsageError
from trackers.hardware.gpus import detect
from trackers.hardware.gpus.amd import REASONS, RESIDENCIES, SysfsSource
from trackers.hardware.gpus.base import Gpu, GpuEvent, GpuSource, Reading, SourceLost
from trackers.hardware.gpus.nvidia import GPM
from trackers.hardware.host import Host, ProcessorLoad
from trackers.metrics import gpu_details as details

WHOLE = {
    "compute_frac": 0.5,
    "memory_busy_frac": 0.25,
    "memory_used_bytes": 20_000_000_000,
    "memory_total_bytes": 80_000_000_000,
    "power_w": 300.0,
    "power_limit_w": 700.0,
    "temp_c": 60.0,
    "sm_clock_hz": 1.755e9,
    "memory_clock_hz": 2.619e9,
    "throttle": [],
}


def fields(reading: dict[str, Any], *without: str) -> dict[str, Any]:
    """A reading's values but for the GPU itself and these."""
    beside = ("gpu", "energy_j", "counted", "details", "users", *without)
    return {name: value for name, value in reading.items() if name not in beside}


@pytest.mark.parametrize("driver", ["new", "old"])
def test_nvidia_readings_are_in_si_units(drivers: Drivers, driver: str) -> None:
    """Percent, mW, mJ and MHz become fractions, W, J and Hz, with new drivers and with those that lack functions."""
    found = drivers.probe(driver, scenes=[{"count": 2, "energy.1": 7_000_500, "reserved": 0}])
    first, second = found["readings"][0]
    assert fields(first) == WHOLE
    assert second["energy_j"] == 7000.5
    assert found["gpus"][1]["uuids"] == ["GPU-00001ab1-c8d9-e0f1-a2b3-c4d5e6f7a8b9"]
    assert found["said"] == []


def test_nvidia_memory_is_what_nvidia_smi_calls_used(drivers: Drivers) -> None:
    """What the driver reserves for itself isn't counted as used."""
    ((reading,),) = drivers.probe("new", scenes=[{"used": 1000, "reserved": 500}])["readings"]
    assert reading["memory_used_bytes"] == 1000


def test_what_a_gpu_lacks_is_absent_and_said_once(drivers: Drivers) -> None:
    """ "Not supported" is None for good, never 0, in one line that names the fields; the other GPU has them."""
    scene = {"count": 2, "error.energy.0": 3, "error.power.0": 3, "error.reasons.0": 4}
    found = drivers.probe("new", scenes=[scene, scene, {"count": 2}])
    for first, second in found["readings"]:
        assert (first["energy_j"], first["power_w"], first["throttle"]) == (None, None, None)
        assert second["power_w"] == 300.0
    (line,) = found["said"]
    assert line.startswith("NVIDIA GPU 0: no energy counter, power (Not Supported), no throttle reasons (")


@pytest.mark.slow
def test_gpus_that_lack_the_same_are_named_together(drivers: Drivers) -> None:
    """One line for all, in which no GPU is said to lack what it has."""
    found = drivers.probe("new", scenes=[{"count": 3, "error.energy": 3, "error.power.1": 3}])
    assert [reading["power_w"] for reading in found["readings"][0]] == [300.0, None, 300.0]
    assert found["said"] == [
        "NVIDIA GPU 0, 2: no energy counter (Not Supported); GPU 1: no energy counter, power (Not Supported); left out"
    ]


def test_what_fails_once_is_absent_once(drivers: Drivers) -> None:
    """An unknown error or a timeout leaves out this sample's value, without a word."""
    found = drivers.probe("new", scenes=[{}, {"error.power": 999, "error.temperature": 10}, {}])
    assert [reading["power_w"] for (reading,) in found["readings"]] == [300.0, None, 300.0]
    assert [reading["temp_c"] for (reading,) in found["readings"]] == [60.0, None, 60.0]
    assert found["said"] == []


def test_what_goes_on_failing_is_said_once(drivers: Drivers) -> None:
    """A value that can't be read for ten samples is named with its error, and is taken when it comes back."""
    failing = {"error.power": 999}
    found = drivers.probe("new", scenes=[{}, *[failing] * 9, {}, *[failing] * 25, {}])
    assert [reading["power_w"] for (reading,) in found["readings"]] == [300.0, *[None] * 9, 300.0, *[None] * 25, 300.0]
    assert found["said"] == ["NVIDIA GPU 0: no power (Unknown Error); left out"]


@pytest.mark.parametrize("code", [15, 16])
def test_lost_gpu_is_left_out_with_one_line(drivers: Drivers, code: int) -> None:
    """A GPU that fell off the bus or needs a reset is no longer read; the others are."""
    scene = {"count": 3, "error.all.1": code}
    found = drivers.probe("new", scenes=[{"count": 3}, scene, scene])
    assert [[reading["gpu"]["label"] for reading in readings] for readings in found["readings"]] == [
        ["0", "1", "2"], ["0", "2"], ["0", "2"],
    ]  # fmt: skip
    (line,) = found["said"]
    assert line.startswith("NVIDIA GPU 1 is lost (")


def test_driver_that_goes_away_is_said_once(drivers: Drivers) -> None:
    """A driver that is unloaded mid-run ends its source with one line; the other vendor's goes on."""
    gone = {"error.power": 9}
    found = drivers.probe("new", "amd", scenes=[{}, gone, gone])
    kinds = [[reading["gpu"]["vendor"] for reading in readings] for readings in found["readings"]]
    assert kinds == [["nvidia", "amd"], ["amd"], ["amd"]]
    (line,) = [line for line in found["said"] if "nvidia" in line]
    assert line == "the nvidia driver is gone (Driver Not Loaded): its GPUs aren't sampled any more"


def test_driver_that_cant_be_started_gives_nothing(drivers: Drivers) -> None:
    """An error of nvmlInit is no crash and no reading."""
    found = drivers.probe("new", scenes=[{"error.init": 9}])
    assert (found["gpus"], found["readings"]) == ([], [[]])


def test_gpu_that_cant_be_opened_keeps_its_number(drivers: Drivers) -> None:
    """CUDA_VISIBLE_DEVICES counts a broken GPU too: the one after it keeps its index."""
    scenes = [{"count": 3, "error.name.1": 15}]
    found = drivers.probe("new", scenes=scenes, environ={"CUDA_VISIBLE_DEVICES": "1,2"})
    assert [reading["gpu"]["label"] for reading in found["readings"][0]] == ["2"]
    assert any("NVIDIA GPU 1 can't be opened" in line for line in found["said"])


def test_throttle_reasons_are_words(drivers: Drivers) -> None:
    """An idle GPU isn't held down; caps and heat are."""
    found = drivers.probe("new", scenes=[{"reasons": 0x1}, {"reasons": 0x44}])
    assert [reading["throttle"] for (reading,) in found["readings"]] == [[], ["software power cap", "hardware thermal"]]


def test_mig_instances_have_their_own_memory_and_no_power(drivers: Drivers) -> None:
    """What is measured for the whole GPU only isn't ascribed to an instance, and that is said."""
    found = drivers.probe("new", scenes=[{"mig": 2, "instance_used": 123}])
    assert [gpu["label"] for gpu in found["gpus"]] == ["0.mig.0", "0.mig.1"]
    reading = found["readings"][0][1]
    assert (reading["memory_used_bytes"], reading["memory_total_bytes"]) == (123, 10_000_000_000)
    assert (reading["power_w"], reading["energy_j"], reading["compute_frac"]) == (None, None, None)
    assert reading["temp_c"] == 60.0
    (line,) = found["said"]
    assert line.startswith("NVIDIA GPU 0.mig.0, 0.mig.1: no ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environ", "scope", "labels"),
    [
        ({}, "job", ["0", "1", "2", "3"]),
        ({"CUDA_VISIBLE_DEVICES": "3,1"}, "job", ["3", "1"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-00001ab2"}, "job", ["2"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, "job", []),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "node", ["0", "1", "2", "3"]),
    ],
)
def test_only_the_jobs_gpus_are_read(drivers: Drivers, environ: dict[str, str], scope: str, labels: list[str]) -> None:
    """The driver shows all; the job's variable chooses, unless the scope is the node."""
    (readings,) = drivers.probe("new", scenes=[{"count": 4, "scope": scope}], environ=environ)["readings"]
    assert [reading["gpu"]["label"] for reading in readings] == labels


FULL = tuple(details.GROUPS)
CAPTURES = Path(__file__).parent / "captures/driver"


def test_details_of_nvidia_come_in_documented_units(drivers: Drivers) -> None:
    """GPM's percent as they are, its MiB/s as bytes a second, nanoseconds as seconds; fields of one name are added."""
    scene = {
        "details": FULL, "gpm": 1, "gpm2": 96_060, "gpm5": 93_237, "gpm20": 6_500, "gpm61": 1_000, "gpm10": 15_971,
        "field5": 2, "field6": 1, "field142": 1, "field82": 46, "field74": 2_500_000_000, "field94": 7,
        "field38": 3, "field45": 4, "fan": 30, "encoder": 12, "decoder": 3, "pcie_gen": 4, "pcie_width": 8,
    }  # fmt: skip
    found = drivers.probe("new", scenes=[scene, scene])
    first, second = (readings[0]["details"] for readings in found["readings"])
    assert "smActive" not in first  # of the time between two samples
    assert second == pytest.approx({
        "smActive": 96.06, "pipeTensorActive": 93.237, "dramActive": 15.971, "pcieTxBytes": 6.5 * 2**20,
        "nvlinkTxBytes": 2**20, "correctedMemoryErrors": 2, "uncorrectedMemoryErrors": 1, "remappedRowsCorrectable": 1,
        "memoryTemp": 46, "heldByPowerSeconds": 2.5, "pcieReplays": 7, "nvlinkCrcErrors": 7, "fanSpeed": 30,
        "encoderUtilization": 12, "decoderUtilization": 3, "graphicsClock": 1755, "pcieLinkGen": 4, "pcieLinkWidth": 8,
    })  # fmt: skip
    assert found["said"] == []


def test_sum_that_lacks_a_part_is_absent(drivers: Drivers) -> None:
    """Of errors that two fields count together, one field alone would be too few."""
    scene = {"details": ["links"], "field38": 3}
    (reading,) = drivers.probe("new", scenes=[scene])["readings"][0]
    assert "nvlinkCrcErrors" not in reading["details"]


def test_activity_comes_after_a_first_sample_that_failed(drivers: Drivers) -> None:
    """A GPM sample that the driver refuses once isn't compared with the next one."""
    scene = {"details": ["activity"], "gpm": 1, "gpm2": 50_000}
    found = drivers.probe("new", scenes=[{**scene, "error.gpm_sample": 999}, scene, scene])
    assert [readings[0]["details"] for readings in found["readings"]] == [{}, {}, {"smActive": 50.0}]


@pytest.mark.parametrize("driver", ["new", "old"])
def test_details_that_a_gpu_lacks_are_absent(drivers: Drivers, driver: str) -> None:
    """An older GPU or driver has none of GPM, ECC and fields: they are left out, and GPM is said."""
    scene = {"details": FULL, "reserved": 0, "error.fan": 3, "error.pcie": 3, "error.encoder": 3, "error.decoder": 3}
    found = drivers.probe(driver, scenes=[scene, scene])
    (reading,) = found["readings"][0]
    assert reading["details"] == {"graphicsClock": 1755}
    why = "needs Hopper or a newer GPU" if driver == "new" else "Function Not Found"
    assert [line for line in found["said"] if "activity" in line] == [f"NVIDIA GPU 0: no activity ({why}); left out"]
    assert fields(reading) == WHOLE


def test_details_are_off_by_default(drivers: Drivers) -> None:
    """Nothing more is asked of a driver than the groups that were named."""
    scene = {"gpm": 1, "gpm2": 1, "field5": 2, "user1": "1 1", "xid": 3}
    found = drivers.probe("new", scenes=[scene, {**scene, "xid": 4}])
    assert all(reading["details"] == {} and reading["users"] is None for (reading,) in found["readings"])
    assert found["events"] == []


def test_what_is_slow_is_asked_every_few_seconds(drivers: Drivers) -> None:
    """The energy counter and errors aren't asked at each sample, unless it is to be whole; the last answers stay."""
    scene = {"details": ["health"], "field5": 1, "energy": 1_000}
    later = {"details": ["health"], "field5": 2, "energy": 2_000}
    found = drivers.probe("new", scenes=[scene, later, {**later, "whole": True}])
    first, second, third = (readings[0] for readings in found["readings"])
    assert [(r["energy_j"], r["counted"]) for r in (first, second, third)] == [(1.0, True), (None, False), (2.0, True)]
    assert [r["details"]["correctedMemoryErrors"] for r in (first, second, third)] == [1, 1, 2]


def test_activity_of_a_mig_instance_is_its_own(drivers: Drivers) -> None:
    """GPM samples an instance by its number on the whole GPU."""
    scene = {"mig": 2, "details": ["activity"], "gpm": 1, "gpm2i7": 10_000, "gpm2i8": 80_000, "gpm2": 45_000}
    readings = drivers.probe("new", scenes=[scene, scene])["readings"][1]
    assert [reading["details"] for reading in readings] == [{"smActive": 10.0}, {"smActive": 80.0}]


def test_xids_are_events_with_their_meaning(drivers: Drivers) -> None:
    """Each once, of the GPU that had it; a program's own mistake is a warning."""
    scenes = [{"details": ["health"], "count": 2}, {"count": 2, "xid.1": 79}, {"count": 2, "xid.1": 31}, {"count": 2}]
    found = drivers.probe("new", scenes=scenes)
    told = [(event["gpu"]["label"], event["code"], event["level"]) for event in found["events"]]
    assert told == [("1", 79, "ERROR"), ("1", 31, "WARN")]
    assert found["events"][0]["text"] == "the GPU has fallen off the bus"


def test_event_of_a_gpu_that_is_lost_is_told(drivers: Drivers) -> None:
    """Xid 79 comes with a GPU that answers nothing any more: it is read before all else."""
    scenes = [{"details": ["health"]}, {"xid": 79, "error.memory": 15}, {"xid": 79, "error.memory": 15}]
    found = drivers.probe("new", scenes=scenes)
    assert [event["code"] for event in found["events"]] == [79]
    assert found["said"] != []


class Toy(GpuSource):
    """A plug-in's source. raises: what read raises."""

    events: Any = ()

    def __init__(self, name: str, raises: Exception | None = None, label: str = "0") -> None:
        self.name, self.raises, self.closed = name, raises, 0
        self.gpus = [Gpu(vendor="toy", index=0, label=label, name="Toy")]

    def read(self, whole: bool = False) -> list[Reading]:
        if self.raises is not None:
            raise self.raises
        return [Reading(gpu=self.gpus[0])]

    def close(self) -> None:
        self.closed += 1


def test_plug_ins_that_fail_leave_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that raises, even under NVIDIA's name, one that is no source, and one with another's devices: a line each."""
    good, bad, again = Toy("toy"), Toy("nvidia", RuntimeError("odd"), "1"), Toy("second")
    event = GpuEvent(good.gpus[0], 1, "", "WARN")
    found: dict[str, Any] = {"good": good, "bad": bad, "again": again, "junk": object()}
    monkeypatch.setattr(detect, "sources", lambda: {name: f"{name}:open" for name in found})
    monkeypatch.setattr(detect.plugins, "load", lambda what, target: lambda opening: found[what.partition(" ")[0]])
    said: list[str] = []
    gpus = detect.Gpus(said.append, scope="node")
    assert [gpu.label for gpu in gpus.gpus] == ["0", "1"]
    assert len(gpus.read()) == 1
    good.events = (event,)
    gpus.read()
    gpus.read()
    assert gpus.events == [event]
    assert (bad.closed, again.closed) == (1, 1)
    assert [line.split()[0] for line in said] == ["again", "junk", "the"]
    gpus.close()
    assert good.closed == 1


def test_driver_without_events_is_sampled_all_the_same(drivers: Drivers) -> None:
    """Events that can't be registered or fetched cost nothing but themselves."""
    scene = {"details": ["health"], "error.events": 3}
    assert drivers.probe("new", scenes=[scene])["events"] == []
    found = drivers.probe("new", scenes=[{"details": ["health"]}, {"error.event_wait": 999, "xid": 79}, {"xid": 79}])
    assert [fields(reading) for (reading,) in found["readings"]] == [WHOLE] * 3
    assert found["events"] == []


@pytest.mark.parametrize("capture", sorted(CAPTURES.glob("*.json")), ids=lambda path: path.stem)
@pytest.mark.parametrize("state", ["idle", "busy"])
def test_answers_of_a_real_driver_are_read(drivers: Drivers, capture: Path, state: str) -> None:
    """What a driver answered on a real GPU, at rest and in matrix products, as the stand-in gives it again."""
    told = json.loads(capture.read_text())[state]
    calls = {name: call.get("value") for name, call in told["calls"].items()}
    scene = {"details": FULL, "gpm": 1, "power": calls["nvmlDeviceGetPowerUsage"], "sm_clock": calls["ClockInfo1"],
             "reasons": calls["nvmlDeviceGetCurrentClocksEventReasons"],
             "utilization": calls["nvmlDeviceGetUtilizationRates"]["gpu"],
             "pcie_gen": calls["nvmlDeviceGetCurrPcieLinkGeneration"]}  # fmt: skip
    scene |= {f"field{number}": value for number, value in told["fields"].items() if isinstance(value, int)}
    asked = {getattr(pynvml, metric.constant): metric for metric in GPM}
    scene |= {f"gpm{number}": round(told["gpm"].get(str(number), 0) * 1000) for number in asked}
    reading = drivers.probe("new", scenes=[scene, scene])["readings"][1][0]
    found = reading["details"]
    for number, metric in asked.items():
        assert found[metric.name] == pytest.approx(
            told["gpm"].get(str(number), 0) * metric.factor, abs=metric.factor / 1e3
        )
    assert found["memoryTemp"] == (36 if state == "idle" else 46)
    assert found["heldByPowerSeconds"] == (0 if state == "idle" else pytest.approx(2.80876352))
    assert reading["throttle"] == ([] if state == "idle" else ["software power cap"])
    assert found["pcieLinkGen"] == 5
    lacking = {"nvlinkCrcErrors", "nvlinkReplays", "nvlinkRecoveries", "retiredPages", "fanSpeed"}
    assert not lacking & found.keys()


def test_processes_that_use_a_gpu_and_their_memory(drivers: Drivers) -> None:
    """By pid; memory that the driver doesn't tell isn't known, which is not 0."""
    scene = {"details": ["processes"], "user1": "4242 1500000000", "user3": "17 unknown"}
    (reading,) = drivers.probe("new", scenes=[scene])["readings"][0]
    assert reading["users"] == {"4242": 1_500_000_000, "17": None}


def test_details_of_amd_come_under_the_same_names(drivers: Drivers) -> None:
    """ECC counts, PCIe's generation from its speed, xGMI's kilobytes as bytes a second, the fan as a share."""
    scene = {"details": FULL, "ecc_corrected": 5, "pcie_speed": 16000, "pcie_replays": 2, "xgmi_errors": 2,
             "user1": "4242 1500000000", "xgmi_read": 1_000}  # fmt: skip
    found = drivers.probe("amd", scenes=[scene, {**scene, "xgmi_read": 2_000_000}])
    first, second = (readings[0]["details"] for readings in found["readings"])
    assert first == {"correctedMemoryErrors": 5, "uncorrectedMemoryErrors": 0, "pcieLinkGen": 4, "pcieLinkWidth": 16,
                     "pcieReplays": 2, "xgmiErrors": 2, "fanSpeed": 20, "memoryTemp": 70}  # fmt: skip
    assert second["xgmiRxBytes"] > 0
    assert second["xgmiTxBytes"] == 0
    assert found["readings"][0][0]["users"] == {"4242": 1_500_000_000}
    lacking = {"details": FULL, **{f"error.{name}": 2 for name in ("ecc", "pcie", "xgmi_status", "links", "fan",
                                                                     "process_list", "junction")}}  # fmt: skip
    assert drivers.probe("amd", scenes=[lacking])["readings"][0][0]["details"] == {}


def test_groups_of_details_are_named_in_one_option() -> None:
    """Sets and groups add up; an unknown name is an error that names the nearest."""
    assert details.parse("off") == frozenset()
    assert details.parse("basic, links") == {"health", "links"}
    assert details.parse("FULL") == set(details.GROUPS)
    with pytest.raises(UsageError, match="unknown details of GPUs 'activty': did you mean 'activity'"):
        details.parse("activty")
    assert {detail.group for detail in details.DETAILS} == set(details.GROUPS)
    assert len({detail.name for detail in details.DETAILS}) == len(details.DETAILS)


def test_documentation_lists_each_detail_and_what_it_was_compared_with() -> None:
    """The table is the one that the package makes; each value is in the table of what was seen on real GPUs."""
    page = (ROOT / "docs/hardware.md").read_text()
    assert details.markdown() in page
    seen = page[page.index("## Seen on real GPUs") : page.index("## Overhead")]
    assert [detail.name for detail in details.DETAILS if f"`{detail.name}`" not in seen] == []


MIXED = {"count": 3, "name.0": "NVIDIA T400", "name.1": "NVIDIA H100 80GB HBM3", "name.2": "NVIDIA H100 80GB HBM3"}


@pytest.mark.parametrize(
    ("environ", "scene", "labels", "said"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0"}, MIXED, ["0"], True),
        ({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, MIXED, ["0"], True),
        ({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, MIXED, ["0"], False),
        ({"CUDA_VISIBLE_DEVICES": "GPU-00001ab1"}, MIXED, ["1"], False),
        ({"CUDA_VISIBLE_DEVICES": "2,1,0"}, MIXED, ["2", "1", "0"], False),
        ({"CUDA_VISIBLE_DEVICES": ""}, MIXED, [], False),
        ({}, MIXED, ["0", "1", "2"], False),
        ({"CUDA_VISIBLE_DEVICES": "0"}, {"count": 3}, ["0"], False),
        ({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, {**MIXED, "bus.0": 9}, ["1"], False),
        (
            {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
            {**MIXED, "bus.0": 9, "error.pci.1": 3},
            ["0"],
            False,
        ),
    ],
)
def test_order_in_which_cuda_counts(
    drivers: Drivers, environ: dict[str, str], scene: dict[str, Any], labels: list[str], said: bool
) -> None:
    """By the bus where CUDA_DEVICE_ORDER says so; where models differ and it does not, one line says so."""
    found = drivers.probe("new", scenes=[scene], environ=environ)
    assert [reading["gpu"]["label"] for reading in found["readings"][0]] == labels
    assert bool(found["said"]) == said
    if said:
        (line,) = found["said"]
        assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in line


def test_amd_readings_are_in_si_units(drivers: Drivers) -> None:
    """Percent, W, µW, MHz and ticks of 15.259 µJ become fractions, W, Hz and J."""
    found = drivers.probe("amd", scenes=[{"energy": 1_000_000}])
    ((reading,),) = found["readings"]
    assert fields(reading) == {
        "compute_frac": 0.5,
        "memory_busy_frac": 0.25,
        "memory_used_bytes": 20_000_000_000,
        "memory_total_bytes": 206_141_652_992,
        "power_w": 600.0,
        "power_limit_w": 750.0,
        "temp_c": 55.0,
        "sm_clock_hz": 2.1e9,
        "memory_clock_hz": 1.3e9,
        "throttle": None,
    }
    assert reading["energy_j"] == pytest.approx(15.259)
    assert found["gpus"][0]["uuids"] == ["GPU-4b2c1a9f8d3e6f70"]
    assert found["said"] == []


@pytest.mark.parametrize("nothing", [0xFFFF, 0xFFFFFFFF])
def test_amd_power_is_current_or_average_never_a_marker(drivers: Drivers, nothing: int) -> None:
    """Older GPUs have the average only; the marks for "none" are absent, not 65,535 or 4 billion watts."""
    scenes = [{"current_power": nothing, "average_power": 250}, {"current_power": nothing, "average_power": nothing}]
    found = drivers.probe("amd", scenes=scenes)
    assert [reading["power_w"] for (reading,) in found["readings"]] == [250.0, None]


def test_amd_temperature_without_edge_is_the_hottest_spot(drivers: Drivers) -> None:
    """MI300 has no edge sensor: its junction is told, without a complaint."""
    found = drivers.probe("amd", scenes=[{"error.edge": 2}, {"error.edge": 2, "junction": 91}])
    assert [reading["temp_c"] for (reading,) in found["readings"]] == [70.0, 91.0]
    assert found["said"] == []


def test_amd_missing_functions_and_lost_driver(drivers: Drivers) -> None:
    """Unsupported is said once; a driver that is unloaded ends the source."""
    found = drivers.probe("amd", scenes=[{"error.energy": 2}, {"error.energy": 2}, {"error.activity": 34}])
    assert [len(readings) for readings in found["readings"]] == [1, 1, 0]
    assert found["said"][0].startswith("AMD GPU 0: no energy counter (")
    assert found["said"][1].startswith("the amd driver is gone (")


@pytest.mark.slow
def test_amd_throttle_bits_are_words(drivers: Drivers) -> None:
    """Up to MI200 a word of bits says what holds a GPU down: each set bit is a word, none is nothing."""
    bits = [0, 1 << 0 | 1 << 36, 1 << 16 | 1 << 17 | 1 << 47]
    found = drivers.probe("amd", scenes=[{"residencies": 0, "throttle_status": word} for word in bits])
    assert [reading["throttle"] for (reading,) in found["readings"]] == [
        [],
        ["package power limit", "hot spot temperature"],
        ["current limit", "hot signal from outside (PROCHOT)"],
    ]
    assert found["said"] == []


def test_amd_throttle_counters_tell_what_held_since_the_last_reading(drivers: Drivers) -> None:
    """MI300 counts for how long each limit held: what grew is a reason, what was there before isn't."""
    one, two = {"count": 2, "ppt": 500}, {"count": 2, "ppt.0": 501, "ppt.1": 500, "hbm_thm.1": 8}
    found = drivers.probe("amd", scenes=[one, one, two, {**two, "ppt.0": 3}])
    first, same, grown, again = ([reading["throttle"] for reading in readings] for readings in found["readings"])
    assert first == [None, None]  # nothing to compare with
    assert same == [[], []]
    assert grown == [["package power limit"], ["memory temperature"]]
    assert again == [[], []]  # a driver that was loaded again counts from 0
    assert found["said"] == []


def test_amd_gpu_that_tells_no_reasons_is_said_once(drivers: Drivers) -> None:
    """Neither bits nor counters, or no GPU metrics at all: absent, not "none", with one line."""
    for scene, why in (({"residencies": 0}, "its GPU metrics have none"), ({"error.metrics": 2}, "not supported")):
        found = drivers.probe("amd", scenes=[scene, scene])
        assert [reading["throttle"] for (reading,) in found["readings"]] == [None, None]
        (line,) = found["said"]
        assert line.startswith("AMD GPU 0: no throttle reasons (")
        assert why in line


def test_amd_gpus_are_the_jobs(drivers: Drivers) -> None:
    """ROCR_VISIBLE_DEVICES takes amdsmi's serial numbers, HIP_VISIBLE_DEVICES counts what is left."""
    environ = {"ROCR_VISIBLE_DEVICES": "GPU-4b2c1a9f8d3e6f73,1,0", "HIP_VISIBLE_DEVICES": "0,2"}
    (readings,) = drivers.probe("amd", scenes=[{"count": 4}], environ=environ)["readings"]
    assert [reading["gpu"]["label"] for reading in readings] == ["3", "0"]


def test_amdsmi_without_rocm_is_contained(tmp_path: Path) -> None:
    """Its import prints and raises KeyError without ROCm's library: here it is one quiet reason."""
    code = """
import json
from trackers.hardware.gpus.amd import REASONS, RESIDENCIES, AmdSource
from trackers.hardware.gpus.base import SourceLost
from trackers.hardware.gpus.nvidia import GPM
try:
    AmdSource(print)
except SourceLost as error:
    print(json.dumps(str(error)))
"""
    env = {**os.environ, "ROCM_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert "libamd_smi" in json.loads(done.stdout)
    assert done.stderr == ""


def gpu_metrics(revision: int, bits: int = 0, counts: tuple[int, ...] = (0,) * 5) -> bytes:
    """The kernel's file of a GPU: struct gpu_metrics_v1_3, or what later revisions have up to the counters."""
    before = {3: 108, 6: 104, 7: 40, 8: 40}.get(revision, 100)
    body = b"\xff" * before + (struct.pack("<Q", bits) if revision == 3 else struct.pack("<5I", *counts))
    return struct.pack("<HBB", 4 + len(body) + 40, 1, revision) + body + b"\xff" * 40


@pytest.mark.parametrize("revision", [6, 7, 8])
def test_sysfs_throttle_counters(revision: int, tmp_path: Path) -> None:
    """The counters of MI300's layouts: what grew between two readings; a file that can't be read now is passed over."""
    said: list[str] = []
    root = plant("mi300", tmp_path)
    files = [root / f"pci/0000:{bus}:00.0/gpu_metrics" for bus in ("05", "c5")]
    source = SysfsSource(said.append, drm=root)
    seen = []
    for first, second in (((5, 0, 0, 0, 9), (1, 1, 1, 1, 1)), ((5, 3, 0, 0, 9), (2, 1, 1, 2, 2))):
        files[0].write_bytes(gpu_metrics(revision, counts=first))
        files[1].write_bytes(gpu_metrics(revision, counts=second))
        seen.append([reading.throttle for reading in source.read()])
    words = list(RESIDENCIES.values())
    assert seen == [[None, None], [("package power limit",), (words[0], words[3], words[4])]]
    assert not any("throttle" in line for line in said)
    files[0].write_bytes(b"")
    assert source.read()[0].throttle is None


@pytest.mark.parametrize("content", [None, b"", b"\x01", gpu_metrics(5), gpu_metrics(3)[:80], gpu_metrics(6)[:115]])
def test_sysfs_without_throttle_reasons(content: bytes | None, tmp_path: Path) -> None:
    """No such file, a layout that tells none, one that is cut short: absent, and said with what else is missing."""
    said: list[str] = []
    root = plant("rx7900", tmp_path)
    if content is not None:
        (root / "card1/device/gpu_metrics").write_bytes(content)
    source = SysfsSource(said.append, drm=root)
    assert [source.read()[0].throttle for _ in range(2)] == [None, None]
    assert said == ["AMD GPU 0: no throttle reasons (the kernel has no file for it); left out"]


def test_amd_reasons_are_apart() -> None:
    """No bit stands for two words, and none of the words could be taken for a list of two."""
    masks = list(REASONS.values())
    assert sum(mask.bit_count() for mask in masks) == sum(masks).bit_count()
    assert not any("," in word for word in (*REASONS, *RESIDENCIES.values()))


def test_sysfs_reads_what_the_kernel_shows(tmp_path: Path) -> None:
    """Only the AMD card is taken; m°C, µW and Hz become °C, W and Hz; there is no energy counter."""
    said: list[str] = []
    root = plant("rx7900", tmp_path)
    (root / "card1/device/gpu_metrics").write_bytes(gpu_metrics(3, bits=1 << 36))
    source = SysfsSource(said.append, drm=root)
    (reading,) = source.read()
    assert reading.throttle == ("hot spot temperature",)
    assert (reading.gpu.name, reading.gpu.uuid) == ("AMD Radeon PRO W7900", "GPU-5e1f4c8a2b3d9e70")
    assert (reading.compute_frac, reading.memory_busy_frac) == (0.97, 0.41)
    assert (reading.memory_used_bytes, reading.memory_total_bytes) == (20401094656, 48301604864)
    assert (reading.power_w, reading.power_limit_w, reading.temp_c) == (238.0, 241.0, 61.0)
    assert (reading.sm_clock_hz, reading.memory_clock_hz, reading.energy_j) == (2.105e9, 1.124e9, None)
    assert said == []


def test_sysfs_says_of_each_gpu_what_it_lacks(tmp_path: Path) -> None:
    """A file that one GPU of two lacks is missed of that one."""
    said: list[str] = []
    root = plant("mi300", tmp_path)
    second = sorted(root.glob("card*/device/mem_info_vram_used"))[1]
    second.unlink()
    readings = SysfsSource(said.append, drm=root).read()
    assert [reading.memory_used_bytes is None for reading in readings] == [True, False]
    why = "(the kernel has no file for it)"
    assert said == [
        f"AMD GPU 0: no SM clock, memory, memory activity, memory clock, power limit, throttle reasons {why}; "
        f"GPU 1: no SM clock, memory activity, memory clock, power limit, throttle reasons {why}; left out"
    ]


def test_sysfs_says_that_clocks_and_limit_are_missing(tmp_path: Path) -> None:
    """Each file that the kernel doesn't have leaves out a value, and is in the line; so do all without sensors."""
    said: list[str] = []
    root = plant("rx7900", tmp_path)
    (root / "card1/device/gpu_metrics").write_bytes(gpu_metrics(3))
    for name in ("power1_cap", "freq1_input", "freq2_input"):
        next(root.glob(f"card1/device/hwmon/hwmon*/{name}")).unlink()
    SysfsSource(said.append, drm=root).read()
    assert said == ["AMD GPU 0: no SM clock, memory clock, power limit (the kernel has no file for it); left out"]


def test_sysfs_orders_by_bus_and_says_what_is_missing(tmp_path: Path) -> None:
    """GPUs are numbered as ROCm does; without an edge sensor the hottest spot is taken; absent files are absent."""
    said: list[str] = []
    source = SysfsSource(said.append, drm=plant("mi300", tmp_path))
    first, second = source.read()
    assert (first.gpu.uuid, second.gpu.uuid) == ("GPU-4b2c1a9f8d3e6f71", "GPU-4b2c1a9f8d3e6f72")
    assert (first.temp_c, first.power_w, first.memory_busy_frac) == (71.0, 700.0, None)
    source.read()
    missing = "SM clock, memory activity, memory clock, power limit, throttle reasons"
    assert said == [f"AMD GPU 0, 1: no {missing} (the kernel has no file for it); left out"]


def test_sysfs_gpu_that_vanishes_is_said_once(tmp_path: Path) -> None:
    """A card whose files are gone is left out; what can't be read during a reset is absent."""
    said: list[str] = []
    root = plant("rx7900", tmp_path)
    source = SysfsSource(said.append, drm=root)
    (root / "card1/device/gpu_busy_percent").write_text("")
    assert source.read()[0].compute_frac is None
    (root / "card1/device").rename(root / "gone")
    assert source.read() == []
    assert source.read() == []
    assert len([line for line in said if "is lost" in line]) == 1


def test_sysfs_without_amd_gpu(tmp_path: Path) -> None:
    """No AMD card is no source."""
    with pytest.raises(SourceLost):
        SysfsSource(print, drm=tmp_path)


def test_amd_driver_of_which_nothing_can_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's device is there, but neither its library nor the kernel's files: one line; without it, none."""
    said: list[str] = []

    def amdsmi(*_: object, **__: object) -> None:
        raise ImportError

    monkeypatch.setattr(detect, "AmdSource", amdsmi)
    monkeypatch.setattr(detect, "AMD_DEVICE", tmp_path / "kfd")
    assert detect.Gpus(said.append, drm=tmp_path).gpus == []
    assert said == []
    (tmp_path / "kfd").touch()
    assert detect.Gpus(said.append, drm=tmp_path).gpus == []
    (line,) = said
    assert line.startswith("AMD GPUs aren't sampled: no AMD GPU in ")
    assert line.endswith("pip install 'trackers-relay[amd]'")


def test_sysfs_stands_in_where_amdsmi_has_no_library(drivers: Drivers, tmp_path: Path) -> None:
    """Without ROCm the kernel's files are read, and HIP_VISIBLE_DEVICES still chooses."""
    environ = {"STANDIN_DRM": str(plant("mi300", tmp_path / "drm")), "HIP_VISIBLE_DEVICES": "1"}
    found = drivers.probe(scenes=[{}], environ=environ)
    assert [gpu["uuids"] for gpu in found["gpus"]] == [["GPU-4b2c1a9f8d3e6f72"]]
    assert found["readings"][0][0]["power_w"] == 140.0


def test_processors_own_graphics_arent_taken_for_the_jobs(drivers: Drivers, tmp_path: Path) -> None:
    """Beside NVIDIA's GPUs, a card that only the kernel knows isn't added to them."""
    found = drivers.probe("new", scenes=[{}], environ={"STANDIN_DRM": str(plant("rx7900", tmp_path / "drm"))})
    assert [gpu["vendor"] for gpu in found["gpus"]] == ["nvidia"]


@pytest.mark.slow
def test_two_vendors_labels_dont_clash(drivers: Drivers) -> None:
    """Where both vendors have a GPU 0, both are read."""
    (readings,) = drivers.probe("new", "amd", scenes=[{}])["readings"]
    assert [(reading["gpu"]["vendor"], reading["gpu"]["label"]) for reading in readings] == [
        ("nvidia", "0"), ("amd", "0"),
    ]  # fmt: skip


def test_host_tells_of_itself_and_of_training(tmp_path: Path) -> None:
    """Fractions lie between 0 and 1, counters begin at 0, and a process that ends is absent."""
    code = "print(); input()"
    child = subprocess.Popen([sys.executable, "-uc", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    host = Host(child.pid, str(tmp_path))
    reading = host.read()
    assert reading.memory_frac is not None
    assert 0 < reading.memory_frac < 1
    assert reading.process_rss_bytes is not None
    assert reading.process_rss_bytes > 1_000_000
    assert reading.disk_used_bytes
    assert reading.network_sent_bytes is not None
    assert reading.network_sent_bytes >= 0
    child.communicate(b"\n")
    assert host.read().process_rss_bytes is None


class ProcessorTimes(NamedTuple):
    """The processors' seconds, as psutil has them."""

    user: float
    system: float
    idle: float


def test_host_counts_from_its_beginning_in_fractions_of_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are those since sampling began, each in its own direction; 1.0 is one core; what fails is absent."""
    disk, network = [SimpleNamespace(read_bytes=100, write_bytes=200)], [SimpleNamespace(bytes_sent=10, bytes_recv=20)]
    monkeypatch.setattr(psutil, "disk_io_counters", lambda: disk[-1])
    monkeypatch.setattr(psutil, "net_io_counters", lambda: network[-1])
    times = [(10.0, 5.0, 85.0), (14.0, 5.0, 91.0)]  # 4 s of 10 s busy
    monkeypatch.setattr(psutil, "cpu_times", lambda: ProcessorTimes(*(times.pop(0) if len(times) > 1 else times[0])))
    monkeypatch.setattr(psutil.Process, "cpu_percent", lambda self, interval: 250.0)
    host = Host(os.getpid(), str(tmp_path))
    disk.append(SimpleNamespace(read_bytes=101, write_bytes=205))
    network.append(SimpleNamespace(bytes_sent=17, bytes_recv=29))
    found = host.read()
    assert (found.disk_read_bytes, found.disk_written_bytes) == (1, 5)
    assert (found.network_sent_bytes, found.network_received_bytes) == (7, 9)
    assert (found.cpu_frac, found.process_cpu_frac) == (0.4, 2.5)

    def refuse() -> None:
        raise PermissionError

    monkeypatch.setattr(psutil, "disk_io_counters", lambda: None)  # as in some containers
    monkeypatch.setattr(psutil, "net_io_counters", refuse)
    found = host.read()
    assert (found.disk_read_bytes, found.network_sent_bytes) == (None, None)


def test_load_is_that_since_the_last_look_of_any_thread() -> None:
    """A thread that looks for the first time has the load since another's look, not 0; within a tick it is the last."""
    looks = [(0.0, 0.0, 100.0), (3.0, 0.0, 101.0), (3.0, 0.0, 101.0), (3.0, 0.0, 105.0)]
    load = ProcessorLoad(SimpleNamespace(cpu_times=lambda: ProcessorTimes(*looks.pop(0))))
    found = [load.percent()]
    looker = threading.Thread(target=lambda: found.extend([load.percent(), load.percent()]))
    looker.start()
    looker.join()
    assert math.isnan(found.pop(0))
    assert [*found, load.percent()] == [75.0, 75.0, 0.0]


def test_first_look_has_no_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a tick of the clock has passed there is none: a 0 would count in averages, as a monitor's first sample."""
    times = [ProcessorTimes(10.0, 5.0, 85.0)]
    monkeypatch.setattr(psutil, "cpu_times", lambda: times[-1])
    host = Host(None, str(tmp_path))
    assert host.read().cpu_frac is None
    times.append(ProcessorTimes(14.0, 5.0, 91.0))
    assert host.read().cpu_frac == 0.4


def test_host_says_once_what_it_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line for all that is missing, another for what is lost later; training that ends is no loss."""

    def refuse(*arguments: Any) -> None:
        raise PermissionError("/proc is closed")

    said: list[str] = []
    monkeypatch.setattr(psutil, "disk_io_counters", lambda: None)
    monkeypatch.setattr(psutil, "net_io_counters", refuse)
    monkeypatch.setattr(psutil, "cpu_times", refuse)
    child = subprocess.Popen(["sleep", "60"])
    host = Host(child.pid, str(tmp_path), said.append)
    assert host.read().cpu_frac is None
    child.kill()
    child.wait()
    host.read()
    (line,) = said
    for part in ("processor (/proc is closed)", "disk traffic (the system has no", "network (/proc is closed)"):
        assert part in line
    monkeypatch.setattr(psutil, "disk_usage", refuse)
    host.read()
    host.read()
    assert said[1:] == ["the host doesn't report, so it is left out: disk space (/proc is closed)"]
