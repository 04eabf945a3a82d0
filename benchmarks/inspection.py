"""What tensor inspection costs: one pass over a tensor, and a GPT's step with statistics every hundredth one."""

from __future__ import annotations

import importlib
import statistics
import sys
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import ROOT, Figure, main

PASS = 1.5
"""All statistics of a tensor may cost so many times what its abs().max() and its std() do."""
SHARE = 2.0
"""Percent of training's time that statistics may take at freq=100."""
WATCHED = 1.05
"""So many times as long a step may take whose histograms aren't due."""
FREQ = 100
STATS = ["min", "max", "mean", "std", "l1_norm", "l2_norm", "cur_amax", "dynamic_range"]
SIZES = (1 << 16, 1 << 20, 1 << 24)
SHAPE, BATCH = (256, 128, 4, 4, 128), 16
"""The example's: vocabulary, block, layers, heads, width; stretches of text in a step."""


def ratio(one: Callable[[], Any], other: Callable[[], Any], rounds: int) -> float:
    """How much longer the one takes than the other: the median over rounds in which they take turns."""
    found = []
    for place in range(rounds):
        times = [0.0, 0.0]
        for turn in (0, 1):
            which = (turn + place) % 2
            began = time.perf_counter()
            (one, other)[which]()
            times[which] = time.perf_counter() - began
        found.append(times[0] / times[1])
    return statistics.median(found)


def pass_figures(rounds: int) -> list[Figure]:
    """All eight statistics of a tensor, beside two of them as torch has them."""
    import torch

    from trackers.inspection.statistics import COLUMNS, moments

    found = []
    for size in SIZES:
        tensor = torch.randn(size)
        some = max(7, rounds * SIZES[0] // size)
        for dtype in (torch.float32, torch.bfloat16):
            one = tensor.to(dtype)
            value = ratio(
                lambda one=one: moments(torch, one, tuple(COLUMNS)),  # type: ignore[misc]
                lambda one=one: (one.abs().max(), one.std()),  # type: ignore[misc]
                some,
            )
            name = f"one pass, {size:,} of {str(dtype).removeprefix('torch.')} / abs().max() and std()"
            found.append(Figure(name, value, "x", at_most=PASS))
    return found


def step_figures(run: Any, rounds: int) -> list[Figure]:
    """A step of examples/gpt2's GPT that is looked at, and what is left of that in a hundred.

    At the steps between there is no hook: all that they cost is the call that finds nothing due.
    """
    import torch

    sys.path.insert(0, str(ROOT / "examples/gpt2"))
    model_module = importlib.import_module("model")
    torch.manual_seed(0)
    gpt = model_module.GPT(model_module.Shape(*SHAPE))
    optimizer = torch.optim.AdamW(gpt.parameters())
    tokens = torch.randint(SHAPE[0], (BATCH, SHAPE[1]))

    def step() -> None:
        loss = gpt(tokens, tokens)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    def features(*tensors: str) -> dict[str, Any]:
        inner = {"enabled": True, "tensors": list(tensors), "stats": STATS, "freq": FREQ}
        layers = {"layer_name_regex_pattern": ".*"}
        return {"all": {"enabled": True, "layers": layers, "transformer_engine": {"LogTensorStats": inner}}}

    from trackers.inspection import TensorInspectConfig

    found = []
    for name, tensors in (
        ("activations, gradients, weights", ("activation", "gradient", "weight")),
        ("all six tensors", ("activation", "gradient", "weight", "output", "wgrad", "dgrad")),
    ):
        inspector = run.inspect(TensorInspectConfig(enabled=True, features=features(*tensors)), gpt)

        alone, more = [], []
        for _ in range(rounds):
            began = time.perf_counter()
            step()
            alone.append(time.perf_counter() - began)
            inspector.iteration = FREQ - 1
            inspector.step()  # gets ready for the next one, which is looked at
            began = time.perf_counter()
            step()
            inspector.step()
            more.append(time.perf_counter() - began - alone[-1])
        between = min(timeit.repeat(lambda one=inspector: _between(one), number=100, repeat=rounds)) / 100
        each = statistics.median(alone)
        share = (statistics.median(more) / FREQ + between) / each * 100
        found += [
            Figure(f"statistics at freq={FREQ}, {name}: share of training", share, "%", at_most=SHARE),
            Figure("  a step that is looked at / a step", 1 + statistics.median(more) / each, "x"),
            Figure("  each other step: more than alone", between * 1e6, "us"),
        ]
    return [*found, Figure("  a step alone", each * 1e3, "ms")]


def watch_figures(run: Any, rounds: int) -> list[Figure]:
    """A step whose gradients and parameters are watched: between two histograms, and at one."""
    import torch

    sys.path.insert(0, str(ROOT / "examples/gpt2"))
    model_module = importlib.import_module("model")
    gpts = []
    for _ in range(2):
        torch.manual_seed(0)
        gpts.append(model_module.GPT(model_module.Shape(*SHAPE)))
    tokens = torch.randint(SHAPE[0], (BATCH, SHAPE[1]))

    def step(gpt: Any) -> None:
        gpt.zero_grad(set_to_none=True)
        gpt(tokens, tokens).backward()

    alone, watched = gpts
    run.watch(watched, log="all", log_freq=1 << 60)
    between = ratio(lambda: step(watched), lambda: step(alone), rounds)
    run.unwatch()
    run.watch(watched, log="all", log_freq=1)
    due = ratio(lambda: step(watched), lambda: step(alone), max(5, rounds // 4))
    run.unwatch()
    return [
        Figure("watch(log='all'), a step between histograms / a step alone", between, "x", at_most=WATCHED),
        Figure("  a step with histograms / a step alone", due, "x"),
    ]


def _between(inspector: Any) -> None:
    inspector.iteration = 6
    inspector.step()


def measure(quick: bool) -> list[Figure]:
    """The figures."""
    import trackers

    try:
        import torch
    except ImportError:
        print("nothing is measured: torch isn't installed", file=sys.stderr)
        return []
    torch.set_num_threads(1)
    run = trackers.init("json", project="bench", mode="offline", options={"TRACKER_RELAY": False})
    figures = pass_figures(20 if quick else 400) + step_figures(run, 5 if quick else 60)
    figures += watch_figures(run, 5 if quick else 100)
    run.finish()
    return figures


if __name__ == "__main__":
    main(measure, "tensor inspection")
