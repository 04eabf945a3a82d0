"""What instruments cost: a timer, norms of a model of 1,000 tensors, and a training step with everything on."""

from __future__ import annotations

import statistics
import sys
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import Figure, main

ENABLED_US, DISABLED_US, HANDLE_US = 1.0, 0.3, 0.1
NORMS = 1.3
"""Norms may cost so many times what torch's own total norm does."""


def per_call_us(statement: str, names: dict[str, Any], number: int) -> float:
    """Microseconds of a statement, without the loop around it: the quickest of several rounds."""
    rounds = 15
    empty = min(timeit.repeat("pass", number=number, repeat=rounds))
    return (min(timeit.repeat(statement, globals=names, number=number, repeat=rounds)) - empty) / number * 1e6


def timer_figures(run: Any, number: int) -> list[Figure]:
    """A timer that measures and one above the level, by name and through a handle."""
    names = {"run": run, "on": run.timer("on", level=0), "off": run.timer("off", level=2)}

    def figure(name: str, statement: str, at_most: float | None) -> Figure:
        return Figure(name, per_call_us(statement, names, number), "us", at_most=at_most)

    return [
        figure("timer, enabled, handle", "with on: pass", ENABLED_US),
        figure("timer, enabled, by name", "with run.timer('on', level=0): pass", ENABLED_US),
        figure("timer, disabled, by name", "with run.timer('off', level=2): pass", DISABLED_US),
        figure("timer, disabled, handle", "with off: pass", HANDLE_US),
    ]


def turns(one: Callable[[], Any], other: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Seconds of each, the median of rounds in which they take turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for place in range(rounds):
        for turn in (0, 1):
            which = (turn + place) % 2
            began = time.perf_counter()
            (one, other)[which]()
            times[which].append(time.perf_counter() - began)
    return statistics.median(times[0]), statistics.median(times[1])


def norm_figures(rounds: int) -> list[Figure]:
    """The gradients' norm of 1,000 tensors, beside torch's own; and each tensor's with it."""
    import torch
    from torch import nn

    from trackers.instruments.norms import Norms

    model = nn.ParameterList([nn.Parameter(torch.randn(128, 128)) for _ in range(1000)])
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    grads = [parameter.grad for parameter in model.parameters()]
    norms, layers = Norms(model), Norms(model, per_layer=True)
    ours, theirs = turns(norms.gradients, lambda: nn.utils.get_total_norm(grads), rounds)
    each, _ = turns(layers.gradients, lambda: nn.utils.get_total_norm(grads), rounds)
    return [
        Figure("norms, 1,000 tensors / torch's get_total_norm", ours / theirs, "x", at_most=NORMS),
        Figure("  ours", ours * 1e3, "ms"),
        Figure("  each tensor's, too", each * 1e3, "ms"),
    ]


def step_figures(run: Any, rounds: int) -> list[Figure]:
    """A step of a small model on the CPU, measured with everything on at each step, against the same step alone."""
    import torch
    from torch import nn

    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(64, 256)

    def step(forward: Any = None) -> None:
        if forward is None:
            loss = model(batch).square().mean()
        else:
            with forward:
                loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(5):
        step()
    alone = []
    for _ in range(rounds):
        began = time.perf_counter()
        step()
        alone.append(time.perf_counter() - began)
    loop = run.loop(
        total_steps=10**9, samples_per_step=64, tokens_per_step=64, flops_per_step=1e9, model=model,
        optimizer=optimizer, interval=1, throughput=True, runtime=True, memory=True, norms=True, zeros=True,
    )  # fmt: skip
    forward, on = run.timer("forward"), []
    for _ in range(rounds):
        began = time.perf_counter()
        step(forward)
        loop.step()
        on.append(time.perf_counter() - began)
    loop.close()
    return [
        Figure(
            "step with everything measured each step: more than alone",
            (statistics.median(on) - statistics.median(alone)) * 1e3,
            "ms",
        ),
        Figure("  a step alone", statistics.median(alone) * 1e3, "ms"),
    ]


def measure(quick: bool) -> list[Figure]:
    """The figures."""
    import trackers

    run = trackers.init("json", project="bench", mode="offline", options={"TRACKER_TIMING_LEVEL": 0})
    figures = timer_figures(run, 10_000 if quick else 200_000)
    try:
        import torch

        torch.set_num_threads(1)
        figures += norm_figures(5 if quick else 60)
        figures += step_figures(run, 20 if quick else 300)
    except ImportError:
        print("norms and steps aren't measured: torch isn't installed", file=sys.stderr)
    run.finish()
    return figures


if __name__ == "__main__":
    main(measure, "instruments")
