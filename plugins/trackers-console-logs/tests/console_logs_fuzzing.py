"""Logs of all programs for ``make fuzz``; TARGETS=log-keras: those of one."""

from __future__ import annotations

from pathlib import Path

from tests import LOGS
from tests.fuzz import mutate
from tests.fuzz.targets import TEXT, Target, mostly_copied

PROGRAMS = ("accelerate", "automodel", "bridge", "deepspeed", "fairseq", "gpt-neox", "keras", "levanter", "lightning",
            "litgpt", "maxtext", "megatron-deepspeed", "megatron", "mmengine", "modded-nanogpt", "nanochat", "nanogpt",
            "nemo", "olmo", "prime-rl", "primus", "timm", "torchtitan", "trainer", "ultralytics", "verl")  # fmt: skip
"""Beginnings of the names of a program's logs."""


def seeds(place: Path, run: Path) -> None:
    """The first and the last lines of each log."""
    (place / "log").mkdir()
    for log in sorted(LOGS.glob("*.log")):
        lines = log.read_bytes().splitlines(keepends=True)
        (place / "log" / log.name).write_bytes(b"".join([*lines[:60], *lines[-20:]]))


def targets() -> dict[str, Target]:
    """What is damaged, and how."""
    return {"log": Target("log", "*.log", (*TEXT, mutate.zipped), mostly_copied("log", "*.log"), alone=True)}


def parts() -> dict[str, Target]:
    """The logs of one program, which are fuzzed where they are named."""
    found = {
        f"log-{name}": Target("log", f"{name}.log {name}-*.log", TEXT, mostly_copied("log", "*.log"), alone=True)
        for name in PROGRAMS
    }
    return found | {"log-megatron": found["log-nemo"]._replace(files="megatron.log megatron-[!d]*.log")}
