"""Peak rates of devices: dense matrix products, TFLOP/s by precision, as the vendors state them.

Vendors often print figures "with sparsity", twice the dense ones: those are halved here. Where a data sheet gives
several rates of accumulation, the one with float32 counts, which is what training uses. AMD's two-die parts are seen
as two devices: a device has half. A part that isn't listed has no peak, and so no utilisation: set one by
``TRACKER_PEAK_TFLOPS``.

What a device can do at most at the precision of a model's matrix products, where the user gives neither.

The precision is the type of the parameters; for float32 ones, what autocast makes of them, as seen when the model is
called in the first step; without autocast, what torch is set to use for float32.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from trackers.errors import UsageError
from trackers.instruments.timers import cuda_in_use
from trackers.support.interruption import pass_on, suppress
from trackers.support.module_calls import Observer
from trackers.support.optional import torch_for

PRECISIONS = ("fp4", "fp8", "bf16", "fp16", "tf32", "fp32")

SOURCES = {
    "blackwell": "https://resources.nvidia.com/en-us-blackwell-architecture/datasheet (B200, B300, GB200 data sheets)",
    "hopper": "https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet (H100, H200)",
    "h20": "https://resources.nvidia.com/en-us-gpu-resources/h20-datasheet",
    "ada": "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf; L4, L40",
    "rtx50": "https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/nvidia-rtx-blackwell-gpu-architecture.pdf",
    "ampere": "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us.pdf",
    "ga102": "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf; A10, A40",
    "volta": "https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf",
    "turing": "https://www.nvidia.com/en-us/data-center/tesla-t4/",
    "cdna4": "https://www.amd.com/en/products/accelerators/instinct/mi350.html",
    "cdna3": "https://www.amd.com/en/products/accelerators/instinct/mi300.html",
    "cdna2": "https://www.amd.com/en/products/accelerators/instinct/mi200.html",
    "cdna1": "https://www.amd.com/en/products/accelerators/instinct/mi100.html",
    "rdna3": "https://www.amd.com/en/products/graphics/workstations/radeon-pro/w7900.html (and RX 7900 XTX)",
}  # fmt: skip
"""Sources of the figures, by family."""


class DevicePeak(NamedTuple):
    """A device: what its name matches, TFLOP/s by precision, and the key of its source."""

    pattern: str
    tflops: Mapping[str, float]
    source: str


def _part(pattern: str, source: str, **tflops: float) -> DevicePeak:
    if "bf16" in tflops:  # the same on every part that has both, but where said otherwise
        tflops.setdefault("fp16", tflops["bf16"])
    return DevicePeak(pattern, tflops, source)


# The first match counts: a part's variants come before the part.
PARTS = (
    _part(r"\bGB300\b", "blackwell", bf16=2500, fp8=5000, fp4=15000, tf32=1250),
    _part(r"\bGB200\b", "blackwell", bf16=2500, fp8=5000, fp4=10000, tf32=1250, fp32=80),
    _part(r"\bB300\b", "blackwell", bf16=2250, fp8=4500, fp4=13500, tf32=1125),
    _part(r"\bB200\b", "blackwell", bf16=2250, fp8=4500, fp4=9000, tf32=1100, fp32=75),
    _part(r"\bH200 NVL\b", "hopper", bf16=835.5, fp8=1671, tf32=417.5, fp32=60),
    _part(r"\bH100 NVL\b", "hopper", bf16=835.5, fp8=1671, tf32=417.5, fp32=60),
    _part(r"\bH100 PCIe\b", "hopper", bf16=756, fp8=1513, tf32=378, fp32=51),
    _part(r"\b(G?H200|H100|H800)\b(?! PCIe)", "hopper", bf16=989.4, fp8=1978.9, tf32=494.7, fp32=66.9),
    _part(r"\bH20\b", "h20", bf16=148, fp8=296, tf32=74, fp32=44),
    _part(r"\bA[18]00\b", "ampere", bf16=312, tf32=156, fp32=19.5),
    _part(r"\bA30\b", "ampere", bf16=165, tf32=82, fp32=10.3),
    _part(r"\bRTX A6000\b", "ga102", bf16=154.8, tf32=77.4, fp32=38.7),
    _part(r"\bA40\b", "ga102", bf16=149.7, tf32=74.8, fp32=37.4),
    _part(r"\bA10\b", "ga102", bf16=125, tf32=62.5, fp32=31.2),
    _part(r"\bRTX 3090\b(?! Ti)", "ga102", bf16=71.2, tf32=35.6, fp32=35.6),
    _part(r"\bRTX 6000 Ada\b", "ada", bf16=364.2, fp8=728.5, tf32=182.1, fp32=91.1),
    _part(r"\bL40S\b", "ada", bf16=362.05, fp8=733, tf32=183, fp32=91.6),
    _part(r"\bL40\b", "ada", bf16=181.05, fp8=362, tf32=90.5, fp32=90.5),
    _part(r"\bL20\b", "ada", bf16=119.5, fp8=239, tf32=59.8, fp32=59.8),
    _part(r"\bL4\b", "ada", bf16=121, fp8=242.5, tf32=60, fp32=30.3),
    _part(r"\bRTX 4090\b(?! D| Lap)", "ada", bf16=165.2, fp8=330.3, tf32=82.6, fp32=82.6),
    _part(r"\bRTX 5090\b(?! D| Lap)", "rtx50", bf16=209.5, fp8=419, tf32=104.8, fp32=104.8),
    _part(r"\bV100-PC", "volta", fp16=112, fp32=14),
    _part(r"\bV100-SX", "volta", fp16=125, fp32=15.7),
    _part(r"\bT4\b", "turing", fp16=65, fp32=8.1),
    _part(r"\bMI355X\b", "cdna4", bf16=2516.6, fp8=5033.2, fp4=10066.3, fp32=157.3),
    _part(r"\bMI350X\b", "cdna4", bf16=2306.9, fp8=4613.7, fp4=9227.5, fp32=144.2),
    _part(r"\bMI3(00|25)X\b", "cdna3", bf16=1307.4, fp8=2614.9, tf32=653.7, fp32=163.4),
    _part(r"\bMI300A\b", "cdna3", bf16=980.6, fp8=1961.2, tf32=490.3, fp32=122.6),
    _part(r"\bMI250X\b", "cdna2", bf16=191.5, fp32=47.9),
    _part(r"\bMI250\b", "cdna2", bf16=181, fp32=45.3),
    _part(r"\bMI210\b", "cdna2", bf16=181, fp32=45.3),
    _part(r"\bMI100\b", "cdna1", bf16=92.3, fp16=184.6, fp32=46.1),
    _part(r"\bRX 7900 XTX\b", "rdna3", bf16=122.8, fp32=61.4),
    _part(r"\bW7900\b", "rdna3", bf16=122.6, fp32=61.3),
)


def part(name: str) -> DevicePeak | None:
    """The part of this name, as torch and the drivers give it; None for one that isn't listed, or for a slice (MIG)."""
    if re.search(r"\bMIG\b", name):
        return None
    return next((part for part in PARTS if re.search(part.pattern, name, re.IGNORECASE)), None)


def peak_tflops(name: str, precision: str) -> float | None:
    """A device's peak, TFLOP/s; None where it isn't known.

    Raises:
        UsageError: an unknown precision.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"precision {precision!r}: known are {', '.join(PRECISIONS)}")
    device = part(name)
    return None if device is None else device.tflops.get(precision)


def given_tflops(text: object) -> float | None:
    """``TRACKER_PEAK_TFLOPS`` as a number; None where it is empty.

    Raises:
        UsageError: it is no positive number.
    """
    if text is None or str(text).strip() == "":
        return None
    try:
        value = float(str(text))
    except ValueError as error:
        pass_on(error)
        value = -1.0
    if not 0 < value < float("inf"):
        raise UsageError(f"TRACKER_PEAK_TFLOPS={text!r}: give the device's peak in TFLOP/s, such as 989.4")
    return value


UNSEEN = (
    "loop: {why}, so that it isn't known whether autocast is on: utilisation is of float32; if that is wrong, give "
    'run.loop precision="bf16"'
)


class Peak:
    """The device's peak.

    Args:
        model: a module, several (a pipeline stage's chunks), or None. precision: where the user says it.
        say: called with what isn't known.
    """

    def __init__(self, model: Any, precision: str | None, say: Callable[[str], None]) -> None:
        self._precision = precision
        self._say = say
        self._cuda = cuda_in_use()
        self._hook: Any = None
        self._why = ""
        if self._cuda is None or precision is not None:
            return
        self._torch = torch_for("throughput")
        self._kinds = {self._torch.bfloat16: "bf16", self._torch.float16: "fp16"}
        chunk = model[0] if isinstance(model, (list, tuple)) and model else model
        if chunk is None:
            self._why = "there is no model="
            return
        self._precision = self._kinds.get(getattr(next(iter(chunk.parameters()), None), "dtype", None))
        if self._precision is None:
            self._why = "the model is compiled, or isn't called itself"
            self._hook = Observer(chunk, self._around)

    def settle(self) -> float | None:
        """TFLOP/s at most, once the first step has ended; None where it isn't known: no utilisation is logged then."""
        self.close()
        if self._cuda is None:
            return None
        if self._why:
            self._say(UNSEEN.format(why=self._why))
        name = str(self._cuda.get_device_name())
        peak = peak_tflops(name, self._precision or self._of_settings())
        if peak is None:
            self._say(f"loop: no peak is known for {name}: no utilisation is logged; TRACKER_PEAK_TFLOPS sets one")
        return peak

    def close(self) -> None:
        """Let go of the model."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _around(self, module: Any, go_on: Callable[..., Any], arguments: Any, more: Any) -> Any:
        self._look()
        return go_on(*arguments, **more)

    def _look(self) -> None:
        self._why = ""
        with suppress(Exception):
            if self._torch.is_autocast_enabled("cuda"):
                self._precision = self._kinds.get(self._torch.get_autocast_dtype("cuda"))

    def _of_settings(self) -> str:
        matmul = self._torch.backends.cuda.matmul
        setting = getattr(matmul, "fp32_precision", None)  # torch 2.9: asking for allow_tf32 may be an error there
        return "tf32" if setting == "tf32" or (setting is None and matmul.allow_tf32) else "fp32"
