"""Which of what a run says, proves and is told to be counts; where they disagree, that is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trackers.benchmark.steps import StepCollector
from trackers.metrics import roles

TOLERANCE = 0.02
"""Two figures that differ by less agree."""
NVIDIA = ("NVIDIA", "Tesla")
PLATFORMS = ("cuda", "rocm", "cpu")


class Notes:
    """Decides, and lists ``contradictions``, a line each.

    Args:
        given: ``num_gpus``, ``global_batch_size``, ``sequence_length``. word: what the source is called: log or run.
    """

    def __init__(self, given: Mapping[str, int | None], word: str) -> None:
        self._given = given
        self._word = word
        self.contradictions: list[str] = []

    def choose(self, name: str, said: int | None) -> int | None:
        """What the source says, else what was given."""
        given = self._given.get(name)
        if said is not None and given is not None and said != given:
            self.contradictions.append(
                f"{name} is {said} in the {self._word}, not {given} as given: the {self._word}'s is used"
            )
        return given if said is None else said

    def sequence(self, said: int | None, proven: int | None, formula: str) -> int | None:
        """The sequence length: what the printed throughput proves, else what the source says, else what is given."""
        given, word = self._given.get("sequence_length"), self._word
        where = "log's arguments" if word == "log" else f"{word}'s configuration"
        for place, value in ((f"in the {where}", said), ("as given", given)):
            if proven is not None and value is not None and abs(value - proven) > TOLERANCE * proven:
                self.contradictions.append(
                    f"sequence_length is {value} {place}, but {formula} = {proven}: {proven} is used"
                )
        if proven is None and said is not None and given is not None and said != given:
            self.contradictions.append(
                f"sequence_length is {said} in the {word}, not {given} as given: the {word}'s is used"
            )
        for value in (said, given):
            if value is not None and (proven is None or abs(value - proven) <= TOLERANCE * proven):
                return value
        return proven

    def platform(self, steps: StepCollector, machine: Mapping[str, Any]) -> str:
        """cuda, rocm or cpu: of the machine that trained, by what its run says; "unknown" where it says nothing."""
        known = [word for word in steps.accelerators if word in PLATFORMS]
        if known:
            if len(known) > 1:
                self.contradictions.append(f"attempts ran on {' and on '.join(known)}: taken for {known[-1]}")
            return known[-1]
        name = str(machine["gpu"] or "")
        rocm = steps.rocm or "rocm_version" in machine or name.startswith("AMD")
        cuda = "cuda_version" in machine or name.startswith(NVIDIA)
        if rocm and cuda:
            found = "cuda" if name.startswith(NVIDIA) else "rocm"
            self.contradictions.append(
                f"the {self._word} speaks of ROCm and of CUDA ({name or 'no GPU named'}): taken for {found}"
            )
            return found
        if _on_processor(steps, machine):
            return "cpu"
        drivers = {card.get("vendor") for card in steps.cards} or set(steps.machine.get("gpu_drivers") or ())
        rocm, cuda = rocm or drivers == {"amd"}, cuda or drivers == {"nvidia"}
        return "rocm" if rocm else "cuda" if cuda else "unknown"


def _on_processor(steps: StepCollector, machine: Mapping[str, Any]) -> bool:
    """Whether the run says that it trained without a GPU: by its settings, torch's build, or for want of a driver."""
    device = roles.said(steps.config, ("device", "accelerator"), (str,)) if steps.config else None
    if device is not None and device.lower() == "cpu":
        return True
    return str(machine.get("pytorch_version", "")).endswith("+cpu") or steps.machine.get("gpu_drivers") == []
