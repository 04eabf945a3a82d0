"""Random scripts of W&B's words, the same for W&B's own client and for this package under its name.

``python programs.py real|ours SEED…`` plays those of some seeds, each a run of the project ``programs`` named by it,
and writes when the script made its calls into times.json (:class:`Times`).
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any, NamedTuple

NAMES = ("loss", "val/loss", "val/acc", "epoch", "a.b")
GLOBS = ("val/*", "l*")
SUMMARIES = ("first", "min", "max", "mean", "last", "none", "min,max", "copy")
LENGTH = 14


class Call(NamedTuple):
    """A call of the script: a method's name and its arguments."""

    method: str
    arguments: dict[str, Any]


def program(seed: int) -> list[Call]:
    """The calls of one script.

    No name comes twice in a row, where W&B's client loses the first value. Nothing is set or defined while a row waits
    that has the metric or the axis: W&B's client counts that row later. The last row has all names: W&B's client
    computes what a definition asks for with the metric's next value.
    """
    rng = random.Random(seed)
    calls: list[Call] = []
    step, waiting = 0, set[str]()
    for _ in range(LENGTH):
        kind = rng.choice(("log", "log", "log", "step", "step", "keep", "set", "define", "define"))
        if kind in ("log", "step", "keep"):
            further = rng.randint(0, 3) if kind == "step" else 0
            waiting = set() if further else waiting
            free = [name for name in NAMES if name not in waiting]
            if not free:
                continue
            chosen = rng.sample(free, rng.randint(1, min(3, len(free))))
            values = {name: rng.choice((rng.randint(-9, 9), rng.random())) for name in chosen}
            data: dict[str, Any] = {name: value for name, value in values.items() if name != "a.b"}
            if "a.b" in values:
                data["a"] = {"b": values["a.b"]}
            more: dict[str, Any] = {}
            if kind == "step":
                step += further
                more["step"] = step
            elif kind == "keep":
                more["commit"] = False
            waiting = waiting | set(chosen) if kind != "log" else set()
            calls.append(Call("log", {"data": data, **more}))
            if kind == "log":
                step += 1
        elif kind == "set":
            name = rng.choice(("best", "val/acc"))
            if name not in waiting:
                calls.append(Call("set", {name: rng.random()}))
        else:
            overlapping = [glob for glob in GLOBS if not any(call.arguments.get("name") == glob for call in calls)]
            name = rng.choice((*NAMES, *overlapping[:1]))
            if waiting & {name, "epoch"} or (waiting and name in GLOBS):
                continue
            fields: dict[str, Any] = {"name": name}
            if rng.random() < 0.6 and name != "epoch":  # W&B's client also counts the values that it fills in
                # W&B's client forgets the first value of a metric whose result was set.
                fields["summary"] = rng.choice(SUMMARIES if name == "loss" else SUMMARIES[1:])
            if rng.random() < 0.5:
                fields["step_metric"] = "epoch"
            if rng.random() < 0.2:
                fields["overwrite"] = True
            if rng.random() < 0.2:
                fields["hidden"] = True
            if rng.random() < 0.2:
                fields["step_sync"] = rng.random() < 0.5
            calls.append(Call("define_metric", fields))
    last = {name: rng.random() for name in NAMES if "." not in name}
    return [*calls, Call("log", {"data": {**last, "a": {"b": rng.random()}}, "step": step + 1})]


class Times(NamedTuple):
    """Of one script, in Unix seconds: before and after ``init``, and before and after the last call of each row, by
    the row's step."""

    init: tuple[float, float]
    rows: dict[int, tuple[float, float]]


def play(wandb: Any, seed: int) -> Times:
    """One script."""
    begin = time.time()
    run = wandb.init(project="programs", name=str(seed), settings=wandb.Settings(x_disable_stats=True, console="off"))
    times, step = Times((begin, time.time()), {}), 0
    for method, arguments in program(seed):
        if method == "set":
            for name, value in arguments.items():
                run.summary[name] = value
        elif method == "log":
            step = arguments.get("step", step)
            before = time.time()
            run.log(**arguments)
            times.rows[step] = before, time.time()
            step += arguments.keys() == {"data"}
        else:
            getattr(run, method)(**arguments)
    run.finish()
    return times


def main(which: str, *seeds: str) -> None:
    """Play the scripts of some seeds with W&B's client, or with this package under its name."""
    if which == "ours":
        import trackers

        trackers.install_as_wandb()
    import wandb

    with open("times.json", "w") as file:
        json.dump({seed: play(wandb, int(seed)) for seed in seeds}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
