"""From readings to records: folding over time, energy, names, and when something is written."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trackers
from trackers.errors import ConfigError
from trackers.hardware import metric_names
from trackers.hardware.energy import EnergyCounter
from trackers.hardware.gpus.base import Gpu, GpuEvent, Reading
from trackers.hardware.host import HostReading, JobProcesses
from trackers.hardware.metric_names import Window
from trackers.hardware.plan import SamplingPlan, planned
from trackers.hardware.recorder import Sampling
from trackers.records import Alert, Metrics, Record, Summary, Text

NUMBERS = st.floats(min_value=-1e12, max_value=1e12)
SAMPLES = st.lists(st.tuples(NUMBERS, st.floats(min_value=1e-3, max_value=1e4)), min_size=1, max_size=30)


def gpu(label: str = "0") -> Gpu:
    """An NVIDIA GPU."""
    return Gpu(vendor="nvidia", index=int(label.split(".")[0]), label=label)


def reading(label: str = "0", **fields: Any) -> Reading:
    """A reading of one GPU."""
    return Reading(gpu=gpu(label), **fields)


@pytest.mark.slow
@given(SAMPLES)
def test_mean_is_weighted_by_time_and_lies_within_the_range(samples: list[tuple[float, float]]) -> None:
    """The fold's mean is the weighted one, its range the samples', its last the last."""
    window = Window()
    for value, weight in samples:
        window.add({"x": value}, weight)
    fold = window.close()["x"]
    values = [value for value, _ in samples]
    wanted = math.fsum(value * weight for value, weight in samples) / math.fsum(weight for _, weight in samples)
    assert fold.minimum == min(values)
    assert fold.maximum == max(values)
    assert fold.last == values[-1]
    assert fold.minimum <= fold.mean <= fold.maximum
    assert fold.mean == pytest.approx(wanted, rel=1e-9, abs=1e-2)
    assert window.close() == {}


def test_name_that_a_sample_lacks_has_no_part_in_its_time() -> None:
    """A value that is absent for a while isn't 0 then, nor what it was before."""
    window = Window()
    window.add({"a": 10.0, "b": 1.0}, 1.0)
    window.add({"b": 1.0}, 8.0)
    window.add({"a": 20.0, "b": 1.0}, 1.0)
    assert window.close()["a"].mean == 15.0


def test_energy_is_the_counters_difference() -> None:
    """What the counter had at the first reading isn't the run's; power isn't added to it."""
    energy = EnergyCounter()
    for time, count in enumerate((5000.0, 5300.0, 5900.0)):
        energy.add([reading(energy_j=count, power_w=1e6)], time)
    assert energy.total_j == 900.0
    assert energy.method == "hardware counter"


def test_energy_counter_that_was_reset_goes_on() -> None:
    """A driver that was loaded again begins at 0: nothing is taken away, and only what it counts is added."""
    energy = EnergyCounter()
    for time, count in enumerate((5000.0, 5300.0, 10.0, 110.0)):
        energy.add([reading(energy_j=count)], time)
    assert energy.total_j == 400.0


def test_energy_without_counter_is_integrated_power() -> None:
    """Power between two readings is their mean; over a gap of minutes it isn't made up."""
    energy = EnergyCounter()
    for time, power in ((0.0, 100.0), (1.0, 300.0), (2.0, None), (3.0, 300.0), (1000.0, 300.0), (1001.0, 100.0)):
        energy.add([reading(power_w=power)], time)
    assert energy.total_j == 200.0 + 600.0 + 200.0
    assert energy.method == "integrated power"


def test_energy_total_needs_every_gpu() -> None:
    """A sum that lacks one GPU's part would be too small: it is absent."""
    energy = EnergyCounter()
    energy.add([reading("0", energy_j=1.0), reading("1")], 0.0)
    assert energy.total_j is None
    assert energy.used_j(reading("0")) == 0.0
    assert energy.used_j(reading("1")) is None
    assert EnergyCounter().total_j is None


def test_job_values_sum_and_average_all_gpus() -> None:
    """The ``gpu/`` names: means over GPUs, totals of all of them and not GPU 0's, GB of 1e9 bytes."""
    readings = [
        reading("0", compute_frac=0.5, memory_busy_frac=0.2, memory_used_bytes=10**9, memory_total_bytes=8 * 10**9,
                power_w=100.0, temp_c=50.0),
        reading("1", compute_frac=1.0, memory_busy_frac=0.4, memory_used_bytes=3 * 10**9, memory_total_bytes=8 * 10**9,
                power_w=200.0, temp_c=70.0),
    ]  # fmt: skip
    values = metric_names.job_values(readings, 42.0)
    assert values == pytest.approx(
        {
            "gpu/compute_util_avg": 75.0,
            "gpu/memory_util_avg": 30.0,
            "gpu/memory_used_avg_gb": 2.0,
            "gpu/memory_used_total_gb": 4.0,
            "gpu/memory_total_gb": 16.0,
            "gpu/power_total_w": 300.0,
            "gpu/temp_max_c": 70.0,
            "gpu/energy_total_j": 42.0,
        }
    )


def test_job_values_leave_out_what_isnt_known() -> None:
    """No GPU gives no names; a total lacks when one GPU doesn't tell its part, a mean is over those that do."""
    assert metric_names.job_values([], None) == {}
    values = metric_names.job_values([reading("0", power_w=100.0, compute_frac=0.5), reading("1")], None)
    assert values == {"gpu/compute_util_avg": 50.0}


def test_gpu_values_have_wandbs_names_and_units() -> None:
    """memory is bandwidth in percent, memoryAllocated the share of the memory in use; clocks are MHz."""
    values = metric_names.gpu_values(
        reading(memory_busy_frac=0.3, memory_used_bytes=2, memory_total_bytes=8, sm_clock_hz=1.5e9),
        7.0,
        "system.gpu.3.",
    )
    assert values == {
        "system.gpu.3.memory": 30.0,
        "system.gpu.3.memoryAllocated": 25.0,
        "system.gpu.3.memoryAllocatedBytes": 2,
        "system.gpu.3.smClock": 1500.0,
        "system.gpu.3.energyJoules": 7.0,
    }


def test_host_values_have_documented_names_and_units() -> None:
    """Percent, GB of 1e9 and MB of 1e6 bytes, bytes on the network; what can't be had has no name."""
    host = HostReading(
        cpu_frac=0.25, memory_frac=0.5, memory_used_bytes=8_000_000_000, process_cpu_frac=2.5,
        process_rss_bytes=512_000_000, disk_used_frac=0.75, disk_used_bytes=3_000_000_000, disk_read_bytes=7_000_000,
        disk_written_bytes=9_000_000, network_sent_bytes=11, network_received_bytes=13,
    )  # fmt: skip
    assert metric_names.host_values(host) == {
        "system.cpu": 25.0,
        "system.memory_percent": 50.0,
        "system.memory_used_gb": 8.0,
        "system.proc.memory.rssMB": 512.0,
        "system.proc.cpu": 250.0,
        "system.disk.usagePercent": 75.0,
        "system.disk.usageGB": 3.0,
        "system.disk.in": 7.0,
        "system.disk.out": 9.0,
        "system.network.sent": 11,
        "system.network.recv": 13,
    }
    assert metric_names.host_values(HostReading()) == {}


def test_options_decide_what_is_sampled_and_how_often() -> None:
    """Each option of sampling is in the plan that the sampler's process gets; none leaves the documented default."""
    options = {
        "TRACKER_GPU_SCOPE": "node", "TRACKER_SAMPLE_INTERVAL": 3, "TRACKER_SAMPLE_RECORD_INTERVAL": 30,
        "TRACKER_CO2_G_PER_KWH": 400, "TRACKER_GPU_DETAIL": "links, activity",
    }  # fmt: skip
    asked = SamplingPlan(attempt=2, node=1, nodes=2, pid=7)
    assert planned(options, asked) == SamplingPlan(
        attempt=2, node=1, nodes=2, pid=7, scope="node", details=("activity", "links"), interval_s=3.0, record_s=30.0,
        co2_g_per_kwh=400.0,
    )  # fmt: skip
    assert planned({}, asked) == msgspec.structs.replace(asked, details=("health",))
    assert planned({"TRACKER_GPU_DETAIL": "off"}, asked) == asked
    assert (asked.scope, asked.interval_s, asked.record_s, asked.co2_g_per_kwh) == ("job", 1.0, 10.0, 0.0)


def test_unknown_details_are_an_error_of_init_and_nothing_later() -> None:
    """``init`` refuses them with the nearest name; a run that has them all the same is sampled as usual."""
    with pytest.raises(ConfigError, match=r"TRACKER_GPU_DETAIL: .*'activty': did you mean 'activity'"):
        trackers.init("json", options={"TRACKER_GPU_DETAIL": "activty"})
    assert planned({"TRACKER_GPU_DETAIL": "activty"}, SamplingPlan()).details == ("health",)


def test_recorded_range_of_a_sum_is_over_time() -> None:
    """The maximum of the total is the largest total there was, not the sum of the GPUs' separate maxima."""
    window = Window()
    for used in ((8, 1), (1, 8)):
        readings = [
            reading(str(i), memory_used_bytes=gb * 10**9, memory_total_bytes=10**10) for i, gb in enumerate(used)
        ]
        window.add(metric_names.job_values(readings, None), 1.0)
    values = metric_names.recorded(window.close())
    assert values["gpu/memory_used_total_gb.max"] == 9.0
    assert values["gpu/memory_total_gb"] == 20.0
    assert "gpu/memory_total_gb.max" not in values


class Machine:
    """GPUs, host, steps and clock that a test moves by hand."""

    def __init__(self, **plan: Any) -> None:
        self.time = 100.0
        self.step: int | None = None
        self.readings: list[Reading] = []
        self.events: list[GpuEvent] = []
        self.records: list[Record] = []
        before_j = plan.pop("before_j", 0.0)
        self.sampling = Sampling(
            SamplingPlan(**plan),
            self,
            HostOf(self),
            self.records.append,
            lambda: self.step,
            before_j=before_j,
            clock=lambda: self.time,
            now=lambda: 1000.0 + self.time,
        )

    def read(self, whole: bool = False) -> list[Reading]:
        return self.readings

    def label(self, gpu: Gpu) -> str:
        return gpu.label

    def sample(self, seconds: float = 1.0, step: int | None = None, **fields: Any) -> None:
        """Let time pass, and take a sample of one GPU with these values."""
        self.time += seconds
        self.step = self.step if step is None else step
        self.readings = [reading(**fields)] if fields else []
        self.sampling.take()

    def of(self, kind: type[Record], prefix: str = "") -> list[Any]:
        """The records of a kind that have a name with the prefix."""
        return [r for r in self.records if isinstance(r, kind) and any(n.startswith(prefix) for n in r.values)]


class HostOf:
    """A host with one number."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def read(self) -> HostReading:
        return HostReading(cpu_frac=0.5)


def test_gpu_metrics_come_at_each_logged_step_at_most_once_a_sample() -> None:
    """Each sample that finds a newer step is recorded there; the samples before it since the last are in the mean."""
    machine = Machine()
    machine.sample(step=7, power_w=100.0)
    machine.sample(power_w=100.0)
    machine.sample(power_w=400.0)
    machine.sample(step=9, power_w=400.0)
    first, second = machine.of(Metrics, "gpu/")
    assert (first.step, second.step) == (7, 9)
    assert second.values["gpu/power_total_w"] == pytest.approx(300.0)
    assert (second.values["gpu/power_total_w.min"], second.values["gpu/power_total_w.max"]) == (100.0, 400.0)
    assert second.time == 1104.0


def test_gpu_metrics_come_each_interval_when_no_step_does() -> None:
    """A step that takes minutes still shows what the GPUs do, every ten seconds, at the step before it."""
    machine = Machine()
    for _ in range(25):
        machine.sample(step=3, power_w=100.0)
    assert [record.time for record in machine.of(Metrics, "gpu/")] == [1101.0, 1111.0, 1121.0]
    assert {record.step for record in machine.of(Metrics, "gpu/")} == {3}


def test_system_metrics_come_each_interval_without_a_step() -> None:
    """One record for ten samples, from the start on; gpu/* waits for the first step."""
    machine = Machine()
    for _ in range(20):
        machine.sample(power_w=100.0)
    assert [(record.time, record.step) for record in machine.records] == [(1110.0, None), (1120.0, None)]
    assert machine.of(Metrics, "system.")[0].values["system.gpu.0.powerWatts"] == pytest.approx(100.0)
    assert machine.of(Metrics, "gpu/") == []


def test_means_are_weighted_by_the_time_between_samples() -> None:
    """A sampler that was held up doesn't count each sample the same."""
    machine = Machine(record_s=4.0)
    machine.sample(1.0, power_w=100.0)
    machine.sample(3.0, power_w=500.0)
    assert machine.of(Metrics, "system.")[0].values["system.gpu.0.powerWatts"] == pytest.approx(400.0)


def test_host_alone_is_sampled() -> None:
    """Without GPUs there are no gpu/* names and no energy, and the host's are there."""
    machine = Machine(record_s=1.0)
    machine.sample(step=1)
    machine.sampling.finish()
    assert machine.of(Metrics, "gpu/") == []
    assert machine.of(Summary) == []
    assert machine.of(Metrics, "system.cpu")[0].values["system.cpu"] == 50.0


def test_energy_between_two_readings_of_the_counter_is_power_over_time() -> None:
    """A counter that is asked every few seconds only is right each time that it is; in between power fills in."""
    energy = EnergyCounter()
    energy.add([reading(energy_j=1000.0, power_w=100.0)], 0.0)
    energy.add([reading(counted=False, power_w=300.0)], 1.0)
    assert energy.total_j == 200.0
    assert energy.complete
    energy.add([reading(counted=False, power_w=300.0)], 2.0)
    assert energy.total_j == 500.0
    energy.add([reading(energy_j=1480.0, power_w=300.0)], 3.0)
    assert energy.total_j == 480.0
    assert energy.method == "hardware counter"
    energy.add([reading(power_w=300.0)], 4.0)  # asked, and no answer: power fills in, and that is said
    assert not energy.complete
    assert energy.total_j == 780.0
    energy.add([reading(energy_j=5.0, power_w=300.0)], 5.0)  # its driver was loaded anew
    assert energy.total_j == 780.0
    assert energy.complete


def test_details_are_recorded_as_means_or_last_values() -> None:
    """Percentages are means over the interval; counters are the last value; what a sample lacks has no part."""
    machine = Machine(record_s=2.0)
    machine.sample(power_w=1.0, details={"smActive": 40.0, "pcieReplays": 3.0, "pipeTensorActive": 10.0})
    machine.sample(power_w=1.0, details={"smActive": 60.0, "pcieReplays": 5.0})
    (record,) = machine.of(Metrics, "system.gpu")
    assert record.values["system.gpu.0.smActive"] == pytest.approx(50.0)
    assert record.values["system.gpu.0.pcieReplays"] == 5.0
    assert record.values["system.gpu.0.pipeTensorActive"] == 10.0
    machine.sample(step=1, details={"smActive": 90.0, "dramActive": 30.0})
    (job,) = machine.of(Metrics, "gpu/")
    assert job.values["gpu/sm_active_avg"] == pytest.approx(190 / 3)
    assert job.values["gpu/memory_active_avg"] == 30.0


def test_events_are_alerts_once_at_the_newest_step() -> None:
    """What a driver reports is an alert with the GPU, the code and its meaning; what was before the run is none."""
    machine = Machine()
    gpu = reading().gpu
    machine.sample(step=3)
    machine.events.append(GpuEvent(gpu, 79, "the GPU has fallen off the bus", "ERROR"))
    machine.sample(step=4)
    machine.sample(step=5)
    (alert,) = [record for record in machine.records if isinstance(record, Alert)]
    assert (alert.step, alert.level, alert.title) == (4, "ERROR", "GPU 0: Xid 79")
    assert alert.text == "the GPU has fallen off the bus"


def test_memory_of_processes_is_the_jobs_or_others() -> None:
    """The job's own processes, and the memory of all others; where that can't be known there is only their number."""
    users = {10: 4_000, 11: 2_000, 12: 1}
    found = metric_names.user_values(reading(users=users), {10: True, 11: True, 12: False}.get, "g.")
    assert found == {"g.processes": 3, "g.otherProcesses": 1, "g.jobMemoryBytes": 6_000, "g.otherMemoryBytes": 1}
    assert metric_names.user_values(reading(users=users), {10: True, 11: True}.get, "g.") == {"g.processes": 3}
    found = metric_names.user_values(reading(users={10: None, 12: 5}), {10: True, 12: False}.get, "g.")
    assert found == {"g.processes": 2, "g.otherProcesses": 1, "g.otherMemoryBytes": 5}
    assert metric_names.user_values(reading(users={}), {}.get, "g.")["g.otherProcesses"] == 0
    assert metric_names.user_values(reading(), {}.get, "g.") == {}


def test_job_is_training_and_with_a_launcher_its_other_ranks() -> None:
    """Training's children belong to it; another process doesn't, unless a launcher started it beside this rank."""
    wait = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    ranks = {**os.environ, "LOCAL_RANK": "0"}
    with (
        subprocess.Popen(wait, stdin=subprocess.PIPE, env=ranks) as first,
        subprocess.Popen(wait, stdin=subprocess.PIPE) as second,
    ):
        launched, alone = JobProcesses(first.pid), JobProcesses(second.pid)
        assert (launched.has(first.pid), launched.has(second.pid)) == (True, True)
        assert (alone.has(first.pid), alone.has(second.pid)) == (False, True)
        assert JobProcesses(os.getpid()).has(second.pid) is True
        assert alone.has(1) is False
    assert alone.has(second.pid) is None


def test_throttle_reasons_are_recorded_when_they_change() -> None:
    """One text when they come, one when they go, however often they were seen in between."""
    machine = Machine(record_s=1.0)
    for reasons in ((), ("hardware thermal",), ("hardware thermal",), (), ()):
        machine.sample(throttle=reasons)
    texts = [record.values for record in machine.of(Text)]
    assert texts == [{"system.gpu.0.throttle": "hardware thermal"}, {"system.gpu.0.throttle": "none"}]


def test_last_interval_and_totals_are_written_at_the_end() -> None:
    """The end writes what is left, the energy, and what a step took; nothing is later than training's end."""
    machine = Machine(co2_g_per_kwh=400.0)
    machine.readings, machine.step = [reading(energy_j=1000.0)], 10
    machine.sampling.begin()
    machine.sample(step=11, energy_j=1500.0)
    machine.time += 1.0
    machine.step, machine.readings = 20, [reading(energy_j=37_000.0, power_w=5.0)]
    machine.sampling.finish(ended=1101.5)
    (totals,) = machine.of(Summary)
    assert totals.values == pytest.approx(
        {
            "energy/total_kwh": 0.01,
            "energy/source": "hardware counter",
            "energy/per_step_j": 3600.0,
            "energy/co2_g": 4.0,
        }
    )
    assert machine.of(Metrics, "gpu/")[-1].step == 20
    assert machine.of(Metrics, "system.gpu.0.powerWatts")
    assert all(record.time < 1101.5 for record in machine.records)
    assert [record.time for record in machine.records] == sorted(record.time for record in machine.records)


def test_energy_without_a_gpu_that_went_away_says_so() -> None:
    """Where a GPU, or the driver, is gone at the end, a step's energy is of the time before; the total is marked."""
    machine = Machine()
    both = [reading(energy_j=0.0), reading("1", energy_j=0.0)]
    machine.readings, machine.step = both, 0
    machine.sampling.begin()
    for step, used in ((10, 1000.0), (20, 2000.0)):
        machine.time += 1.0
        machine.readings, machine.step = [reading(energy_j=used), reading("1", energy_j=used)], step
        machine.sampling.take()
    machine.time += 1.0
    machine.readings, machine.step = [reading(energy_j=9000.0)], 90
    machine.sampling.finish()
    (totals,) = machine.of(Summary)
    assert totals.values["energy/total_kwh"] == pytest.approx(11_000.0 / 3.6e6)
    assert totals.values["energy/source"] == "hardware counter; incomplete since step 20"
    assert totals.values["energy/per_step_j"] == pytest.approx(200.0)


def test_energy_goes_on_from_earlier_attempts() -> None:
    """A resumed run's total holds what its earlier attempts used; a step's energy is this attempt's alone."""
    machine = Machine(before_j=1000.0)
    machine.readings, machine.step = [reading(energy_j=0.0)], 0
    machine.sampling.begin()
    machine.sample(step=2, energy_j=600.0)
    machine.sampling.finish()
    assert machine.of(Metrics, "gpu/")[0].values["gpu/energy_total_j"] == 1600.0
    (totals,) = machine.of(Summary)
    assert totals.values["energy/total_kwh"] == pytest.approx(1600.0 / 3.6e6)
    assert totals.values["energy/per_step_j"] == pytest.approx(300.0)


def test_names_carry_the_node_where_there_are_several() -> None:
    """The second of two nodes says so in every name; one node alone doesn't."""
    machine = Machine(node=1, nodes=2, record_s=1.0)
    machine.sample(step=1, power_w=100.0, energy_j=1.0)
    machine.sampling.finish()
    found = {name for record in machine.records if isinstance(record, (Metrics, Summary)) for name in record.values}
    assert {"system.node1.cpu", "system.node1.gpu.0.powerWatts", "gpu/node1/power_total_w"} <= found
    assert "energy/node1/total_kwh" in found
    assert all("node1" in name for name in found)
