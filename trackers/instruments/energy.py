"""Energy of this process's GPU per iteration, and its power, under Megatron's names.

By the hardware's own counter where there is one, else by power over time (see :mod:`trackers.hardware.energy`). Each
rank reads its own GPU and nothing waits for another: across ranks the values are a mean over the GPUs that can tell.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from trackers.hardware.energy import LONGEST_GAP_S
from trackers.hardware.energy import EnergyCounter as Meters
from trackers.hardware.gpus.base import Reading
from trackers.instruments.timers import TimerSpan, cuda_in_use
from trackers.reductions import Known
from trackers.support.interruption import pass_on
from trackers.values.device_copy import deferred_number

ENERGY, POWER = "iter-energy/gpu", "power/gpu"


class EnergySource(Protocol):
    """GPUs that can be read, as :class:`trackers.hardware.gpus.detect.Gpus`."""

    def read(self, whole: bool = False) -> Sequence[Reading]: ...

    def close(self) -> None: ...


class RunEnergy:
    """Adds up what the GPU uses while training runs.

    Args:
        say: called with a line for what can't be had. source: the GPU to read; default this rank's.
        ranks: with several, the values are a mean over all ranks' GPUs.
    """

    def __init__(self, say: Callable[[str], None], source: EnergySource | None = None, ranks: int = 1) -> None:
        self._source = own_gpu(say) if source is None else source
        self._ranks = ranks
        self._meters = Meters()
        self._say = say
        self._paused = 0
        self._counted, self._read_s = True, 0.0
        self._from_j = self._read()
        self._used_j, self._whole = 0.0, self._from_j is not None
        if self._from_j is None:
            say("energy: no GPU here reports its energy or power: this rank's isn't measured")

    def pause(self) -> None:
        """From now on what is used doesn't count: an evaluation, a checkpoint."""
        if not self._paused:
            self._add()
        self._paused += 1

    def resume(self) -> None:
        """It counts again."""
        self._paused -= 1
        if not self._paused:
            self._from_j = self._read()
            self._whole = self._whole and self._from_j is not None

    def take(self) -> float | None:
        """Joules since the last call, pauses left out; None where the GPU couldn't tell all of them."""
        if not self._paused:
            self._add()
        used_j, self._used_j = self._used_j, 0.0
        whole, self._whole = self._whole, self._from_j is not None
        return used_j if whole else None

    def values(self, steps: int, span: TimerSpan) -> dict[str, Any]:
        """What to log: joules per iteration and GPU, and that divided by the time of an iteration.

        Args:
            steps: iterations since the last call. span: the time that they took.
        """
        used_j = self.take()
        if steps < 1 or used_j is None:
            # Every rank logs the same names, or others would wait for this one's: with a weight of 0 it adds nothing.
            return {ENERGY: Known(0.0, 0), POWER: Known(0.0, 0)} if self._ranks > 1 else {}
        power_w = deferred_number([span], lambda: used_j / span.elapsed_s if span.elapsed_s > 0 else float("nan"))
        if self._ranks <= 1:
            return {ENERGY: used_j / steps, POWER: power_w}
        return {ENERGY: Known(used_j / steps), POWER: Known(power_w)}

    def close(self) -> None:
        """Release the driver."""
        self._source.close()

    def _add(self) -> None:
        before_s, now_j = self._read_s, self._read()
        if now_j is None or self._from_j is None:
            self._whole = False
        elif not self._counted and self._read_s - before_s > LONGEST_GAP_S:
            self._whole = False
            self._say(
                f"energy: a GPU without an energy counter was asked more than {LONGEST_GAP_S:g} s ago: it isn't "
                "measured; log more often"
            )
        else:
            self._used_j += max(0.0, now_j - self._from_j)
        self._from_j = now_j

    def _read(self) -> float | None:
        """The GPU's energy so far, from an unknown beginning."""
        try:
            readings = self._source.read(whole=True)
        except Exception as error:  # of a driver's bindings: training goes on
            pass_on(error)
            self._say(f"energy: {type(error).__name__}: {error}: this rank's isn't measured meanwhile")
            readings = []
        self._read_s = time.monotonic()
        self._meters.add(readings, self._read_s)
        if not readings or not self._meters.complete:  # a sum that lacks a GPU would be too small
            return None
        self._counted = readings[0].energy_j is not None
        return self._meters.used_j(readings[0])


def own_gpu(say: Callable[[str], None]) -> EnergySource:
    """This rank's GPU alone: by the UUID that torch knows it by, which no renumbering touches, else by its number."""
    from trackers.hardware.gpus.detect import Gpus, visible_gpus

    environ = dict(os.environ)
    chosen = visible_gpus(environ)
    cuda = cuda_in_use()
    number_here = int(cuda.current_device()) if cuda is not None else int(environ.get("LOCAL_RANK") or 0)
    uuid = str(getattr(cuda.get_device_properties(number_here), "uuid", "")) if cuda is not None else ""
    if uuid and not _is_amd():
        environ["CUDA_VISIBLE_DEVICES"] = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        return Gpus(say, environ=environ)
    for name, listed in (("HIP_VISIBLE_DEVICES", chosen.hip), ("CUDA_VISIBLE_DEVICES", chosen.cuda)):
        if listed is not None:
            entries = listed.split(",")
            index = number_here if len(entries) > 1 else 0  # a launcher that shows each rank its own GPU alone
            environ[name] = entries[index] if index < len(entries) else "-1"
            return Gpus(say, environ=environ)
    environ["CUDA_VISIBLE_DEVICES"] = str(number_here)
    return Gpus(say, environ=environ)


def _is_amd() -> bool:
    version = getattr(sys.modules.get("torch"), "version", None)
    return getattr(version, "hip", None) is not None
