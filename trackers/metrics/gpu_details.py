"""What a GPU tells beyond a table of nvidia-smi: how busy its units are, its errors, its links, who uses it.

One row a value (:data:`DETAILS`): the name that it is recorded under (W&B's where W&B has one), its unit, and the tool
that shows the same. Values come in groups that ``TRACKER_GPU_DETAIL`` switches on; docs/hardware.md has the table.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from trackers.errors import UsageError, did_you_mean


class Detail(NamedTuple):
    """A value of one GPU.

    name: after ``system.gpu.0.``. group: of :data:`GROUPS`. unit: as recorded. text: what it is. nvidia: the tool that
    shows the same value; "" where NVIDIA's library has none. amd: the same of AMD's. counts: the last value of an
    interval is recorded, not the mean. wandb: W&B has this name.
    """

    name: str
    group: str
    unit: str
    text: str
    nvidia: str = ""
    amd: str = ""
    counts: bool = False
    wandb: bool = False


GROUPS = {
    "health": "errors of memory, rows and pages taken out of use, time held down, Xid events as alerts",
    "activity": "how busy multiprocessors, tensor cores, floating-point pipes, memory, PCIe and NVLink are",
    "links": "PCIe's generation, width and replays, errors of NVLink or xGMI",
    "engines": "fan, video encoder and decoder, graphics clock",
    "processes": "how many processes use the GPU, and how much of its memory the job's and others' take",
}
"""What ``TRACKER_GPU_DETAIL`` can name, and what is in it."""
BASIC = frozenset({"health"})
_SETS = {"off": frozenset[str](), "basic": BASIC, "full": frozenset(GROUPS)}

_DCGM = "dcgmi dmon -e"

DETAILS = (
    Detail("smActive", "activity", "%", "cycles in which a multiprocessor had a warp", f"{_DCGM} 1002", wandb=True),
    Detail("smOccupancy", "activity", "%", "warps resident, of those that fit", f"{_DCGM} 1003", wandb=True),
    Detail("pipeTensorActive", "activity", "%", "cycles in which a tensor core worked", f"{_DCGM} 1004", wandb=True),
    Detail("pipeTensorHmmaActive", "activity", "%", "the same, for FP16 and BF16", f"{_DCGM} 1014", wandb=True),
    Detail("pipeFp64Active", "activity", "%", "cycles in which an FP64 pipe worked", f"{_DCGM} 1006", wandb=True),
    Detail("pipeFp32Active", "activity", "%", "FP32 pipe", f"{_DCGM} 1007", wandb=True),
    Detail("pipeFp16Active", "activity", "%", "FP16 pipe, tensor cores aside", f"{_DCGM} 1008", wandb=True),
    Detail("dramActive", "activity", "%", "of the memory's bandwidth", f"{_DCGM} 1005", wandb=True),
    Detail("pcieTxBytes", "activity", "B/s", "sent over PCIe, headers included", f"{_DCGM} 1009", wandb=True),
    Detail("pcieRxBytes", "activity", "B/s", "received over PCIe, headers included", f"{_DCGM} 1010", wandb=True),
    Detail("nvlinkTxBytes", "activity", "B/s", "sent over all NVLinks", f"{_DCGM} 1011", wandb=True),
    Detail("nvlinkRxBytes", "activity", "B/s", "received over all NVLinks", f"{_DCGM} 1012", wandb=True),
    Detail("xgmiTxBytes", "activity", "B/s", "sent over all xGMI links", "", "amd-smi xgmi --metric"),
    Detail("xgmiRxBytes", "activity", "B/s", "received over all xGMI links", "", "amd-smi xgmi --metric"),
    Detail("correctedMemoryErrors", "health", "", "corrected ECC errors, since the card was made",
           "nvidia-smi -q -d ECC: Aggregate", "amd-smi metric --ecc", counts=True, wandb=True),
    Detail("uncorrectedMemoryErrors", "health", "", "uncorrectable ECC errors, since the card was made",
           "nvidia-smi -q -d ECC: Aggregate", "amd-smi metric --ecc", counts=True, wandb=True),
    Detail("correctedMemoryErrorsVolatile", "health", "", "corrected ECC errors since the driver was loaded",
           "nvidia-smi -q -d ECC: Volatile", counts=True),
    Detail("uncorrectedMemoryErrorsVolatile", "health", "", "uncorrectable ECC errors since the driver was loaded",
           "nvidia-smi -q -d ECC: Volatile", counts=True),
    Detail("remappedRowsCorrectable", "health", "rows", "rows replaced after correctable errors",
           "nvidia-smi -q -d ROW_REMAPPER", counts=True),
    Detail("remappedRowsUncorrectable", "health", "rows", "rows replaced after uncorrectable errors",
           "nvidia-smi -q -d ROW_REMAPPER", counts=True),
    Detail("remappedRowsPending", "health", "0, 1", "1: a row waits for a reset to be replaced",
           "nvidia-smi -q -d ROW_REMAPPER", counts=True),
    Detail("remappedRowsFailed", "health", "0, 1", "1: a row couldn't be replaced: the card wants service",
           "nvidia-smi -q -d ROW_REMAPPER", counts=True),
    Detail("retiredPages", "health", "pages", "memory pages out of use (before Ampere; AMD)",
           "nvidia-smi -q -d PAGE_RETIREMENT", "amd-smi bad-pages", counts=True),
    Detail("memoryTemp", "health", "°C", "temperature of the memory", "nvidia-smi -q -d TEMPERATURE",
           "amd-smi metric --temperature", wandb=True),
    Detail("heldByPowerSeconds", "health", "s", "clocks held down by the power cap since the driver was loaded",
           "nvidia-smi -q -d PERFORMANCE: SW Power Capping", counts=True),
    Detail("heldByHeatSeconds", "health", "s", "clocks held down by heat since the driver was loaded",
           "nvidia-smi -q -d PERFORMANCE: HW and SW Thermal Slowdown", counts=True),
    Detail("heldByBrakeSeconds", "health", "s", "clocks held down by the power brake since the driver was loaded",
           "nvidia-smi -q -d PERFORMANCE: HW Power Braking", counts=True),
    Detail("pcieLinkGen", "links", "", "PCIe generation in use",
           "nvidia-smi --query-gpu=pcie.link.gen.current", "amd-smi metric --pcie", counts=True, wandb=True),
    Detail("pcieLinkWidth", "links", "lanes", "PCIe lanes in use",
           "nvidia-smi --query-gpu=pcie.link.width.current", "amd-smi metric --pcie", counts=True, wandb=True),
    Detail("pcieReplays", "links", "", "PCIe packets sent again", "nvidia-smi -q: Replays Since Reset",
           "amd-smi metric --pcie", counts=True),
    Detail("nvlinkCrcErrors", "links", "", "damaged flits and packets on NVLinks", "nvidia-smi nvlink -e", counts=True),
    Detail("nvlinkReplays", "links", "", "packets that NVLinks sent again", "nvidia-smi nvlink -e", counts=True),
    Detail("nvlinkRecoveries", "links", "", "times that an NVLink was trained anew", "nvidia-smi nvlink -e",
           counts=True),
    Detail("xgmiErrors", "links", "", "0: none; 1: one; 2: several", "", "amd-smi metric --xgmi-err", counts=True),
    Detail("fanSpeed", "engines", "%", "fan", "nvidia-smi --query-gpu=fan.speed", "amd-smi metric --fan", wandb=True),
    Detail("encoderUtilization", "engines", "%", "video encoder", "nvidia-smi --query-gpu=utilization.encoder",
           wandb=True),
    Detail("decoderUtilization", "engines", "%", "video decoder", "nvidia-smi --query-gpu=utilization.decoder"),
    Detail("graphicsClock", "engines", "MHz", "graphics clock", "nvidia-smi --query-gpu=clocks.gr", wandb=True),
    Detail("processes", "processes", "", "processes that use the GPU", "nvidia-smi", "amd-smi process", counts=True),
    Detail("otherProcesses", "processes", "", "those that aren't the job's", "nvidia-smi", "amd-smi process",
           counts=True),
    Detail("jobMemoryBytes", "processes", "B", "memory that the job's processes have", "nvidia-smi",
           "amd-smi process"),
    Detail("otherMemoryBytes", "processes", "B", "memory that other processes have", "nvidia-smi",
           "amd-smi process"),
)  # fmt: skip
SLOW = frozenset(detail.name for detail in DETAILS if detail.group in ("health", "links"))
"""What a driver is asked for every few seconds only."""
COUNTS = frozenset(detail.name for detail in DETAILS if detail.counts)


def parse(text: str) -> frozenset[str]:
    """The groups that ``TRACKER_GPU_DETAIL`` switches on: "off", "basic", "full" and names of groups, with commas.

    Raises:
        UsageError: a name isn't known.
    """
    groups: frozenset[str] = frozenset()
    for word in text.replace("+", ",").split(","):
        name = word.strip().lower()
        if name in _SETS:
            groups |= _SETS[name]
        elif name in GROUPS:
            groups |= {name}
        elif name:
            known = [*_SETS, *GROUPS]
            near = did_you_mean(name, known, ".")
            raise UsageError(f"unknown details of GPUs {word.strip()!r}{near} Known: {', '.join(known)}")
    return groups


def markdown(groups: Collection[str] = tuple(GROUPS)) -> str:
    """The table of docs/hardware.md."""
    lines = [
        "| `system.gpu.{i}.` | unit | what | group | NVIDIA: the same value in | AMD |",
        "|---|---|---|---|---|---|",
    ]
    for detail in DETAILS:
        if detail.group in groups:
            name = f"`{detail.name}`" + (" (W&B's)" if detail.wandb else "")
            tools = [f"`{tool}`" if tool else "–" for tool in (detail.nvidia, detail.amd)]
            lines.append(f"| {name} | {detail.unit} | {detail.text} | {detail.group} | {tools[0]} | {tools[1]} |")
    return "\n".join(lines)
