"""What a device can do at most at the precision of a model's matrix products, where the user gives neither.

The precision is the type of the parameters; for float32 ones, what autocast makes of them, as seen when the model is
called in the first step; without autocast, what torch is set to use for float32.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from trackers.instruments.peaks import peak_tflops
from trackers.instruments.timers import cuda_in_use
from trackers.support.optional_torch import torch_for

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
            self._hook = chunk.register_forward_pre_hook(self._look)

    def settle(self) -> float | None:
        """TFLOP/s at most, once the first step has ended; None where it isn't known: no utilisation is logged then."""
        self.close()
        if self._cuda is None:
            return None
        if self._why:
            self._say(UNSEEN.format(why=self._why))
        name = str(self._cuda.get_device_name())
        found = peak_tflops(name, self._precision or self._of_settings())
        if found is None:
            self._say(f"loop: no peak is known for {name}: no utilisation is logged; TRACKER_PEAK_TFLOPS sets one")
        return found

    def close(self) -> None:
        """Let go of the model."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _look(self, module: Any, inputs: Any) -> None:
        if self._torch.compiler.is_compiling():  # nothing of this belongs into a compiled graph
            return
        self._why = ""
        with contextlib.suppress(Exception):
            if self._torch.is_autocast_enabled("cuda"):
                self._precision = self._kinds.get(self._torch.get_autocast_dtype("cuda"))

    def _of_settings(self) -> str:
        matmul = self._torch.backends.cuda.matmul
        setting = getattr(matmul, "fp32_precision", None)  # torch 2.9: asking for allow_tf32 may be an error there
        return "tf32" if setting == "tf32" or (setting is None and matmul.allow_tf32) else "fp32"
