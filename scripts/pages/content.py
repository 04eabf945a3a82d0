"""What the training of `make pages` logs, the same for this package and for each vendor's own client."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

PROJECT = "leaves"
STEPS, EPOCH, MEDIA, MODEL = 200, 20, 50, 100
"""Steps of the long run; steps between evaluations, between media, between models."""

CONFIG: dict[str, Any] = {
    "learning_rate": 2e-3,
    "batch_size": 64,
    "seed": None,
    "mixed_precision": True,
    "optimizer": {"name": "adamw", "betas": [0.9, 0.98], "schedule": {"kind": "cosine", "warmup": 15}},
    "network": {"blocks": 3, "width": 192, "stages": [{"kind": "conv", "channels": count} for count in (24, 48, 96)]},
    "instructions": "Name the leaf in one word. " * 40,
    **{f"augment_{number}": number / 20 for number in range(25)},
}
NOTES = "Baseline with a **cosine** schedule.\n\n- 64 leaves a batch\n- compare with `wide`"
TAGS = ["baseline", "leaves-v3"]
SWEEP = [(rate, width) for rate in (5e-4, 2e-3, 8e-3) for width in (96, 192)]
HTML = "<h3>Attention</h3><table border=1><tr><td>one</td><td style='background:#9c6'>leaf</td></tr></table>"
CLASSES = {1: "leaf"}
rng = np.random.default_rng(7)


def loss(step: int, rate: float = 2e-3, seed: int = 0) -> float:
    return 2.2 * math.exp(-step / 55 * (rate / 2e-3) ** 0.3) + 0.12 + 0.04 * math.sin(step * 1.3 + seed)


def rate(step: int) -> float:
    return 2e-3 * (1 - step / STEPS)


def picture(number: int, size: int = 96) -> tuple[Any, tuple[int, int, int, int]]:
    """A picture of one rectangle, and where that is: left, top, right, bottom in pixels."""
    draw = np.random.default_rng(number)
    left, top = (int(x) for x in draw.integers(5, 45, 2))
    width, height = (int(x) for x in draw.integers(18, 45, 2))
    pixels = np.full((size, size, 3), 240, np.uint8)
    right, bottom = min(left + width, size - 1), min(top + height, size - 1)
    pixels[top:bottom, left:right] = draw.integers(0, 190, 3)
    return pixels, (left, top, right, bottom)


def boxes(place: tuple[int, int, int, int]) -> dict[str, Any]:
    left, top, right, bottom = place
    position = {"minX": left, "maxX": right, "minY": top, "maxY": bottom}
    box = {"position": position, "domain": "pixel", "class_id": 1, "box_caption": "leaf 0.9", "scores": {"p": 0.9}}
    return {"predictions": {"box_data": [box], "class_labels": CLASSES}}


def mask(place: tuple[int, int, int, int], size: int = 96) -> Any:
    left, top, right, bottom = place
    found = np.zeros((size, size), np.uint8)
    found[top:bottom, left : (left + right) // 2] = 1
    return found


def sound(number: int) -> Any:
    return (0.4 * np.sin(2 * np.pi * (220 + 40 * number) * np.arange(8000) / 8000)).astype(np.float32)


def weights(step: int) -> Any:
    return rng.normal(step / 100, 1, 1000)


def figure(step: int) -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn, axes = plt.subplots(figsize=(4, 3))
    axes.plot(np.cumsum(np.random.default_rng(step).normal(size=50)))
    axes.set_title(f"residuals at step {step}")
    return drawn


def story(step: int) -> str:
    return f"At step {step} the *leaf* is\n\n- green\n- **round**"


def model_files(step: int) -> Path:
    folder = Path("model")
    folder.mkdir(exist_ok=True)
    (folder / "weights.bin").write_bytes(np.random.default_rng(step).bytes(2000))
    (folder / "settings.json").write_text('{"blocks": 3}')
    return folder


def data_files() -> Path:
    folder = Path("data")
    folder.mkdir(exist_ok=True)
    (folder / "rows.csv").write_text("length,width\n" + "3,1\n" * 60)
    return folder
