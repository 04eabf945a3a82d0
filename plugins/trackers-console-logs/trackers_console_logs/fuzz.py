"""A healthy log, for the conformance kit to damage."""

from __future__ import annotations

from pathlib import Path


def healthy(folder: Path) -> str:
    """Some lines of Megatron's."""
    lines = [
        f"[2026-01-05 10:00:{step:02d}] iteration {step:8d}/ 100 | consumed samples: {8 * step:12d} | "
        f"elapsed time per iteration (ms): 1000.5 | learning rate: 1.0E-04 | lm loss: {3 - step / 100:.6E} |\n"
        for step in range(1, 41)
    ]
    path = folder / "train.log"
    path.write_text("".join(lines), "utf-8")
    return f"log:{path}"
