"""What one look at ``run.should_stop`` costs, against a look at a plain attribute through a property."""

from __future__ import annotations

import sys
import timeit
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import Figure, main

RATIO = 2.5
"""A look may cost so many times a property that returns an attribute."""


class Plain:
    """The least that a property can cost."""

    value = False

    @property
    def look(self) -> bool:
        """An attribute."""
        return self.value


def measure(quick: bool) -> Sequence[Figure]:
    """The fastest of many short series of each, taken in turn, so that other programs disturb both alike."""
    import trackers

    run, plain = trackers.init("json", project="bench", name="stop_look"), Plain()
    looks, series = 2000, 50 if quick else 1000
    best = {"run.should_stop": float("inf"), "plain.look": float("inf")}
    for _ in range(series):
        for what in best:
            took = timeit.timeit(what, globals={"run": run, "plain": plain}, number=looks)
            best[what] = min(best[what], took / looks * 1e9)
    run.finish()
    ours, least = best.values()
    return [
        Figure("should_stop: look / property", ours / least, "x", at_most=RATIO),
        Figure("  look", ours, "ns"),
        Figure("  property", least, "ns"),
    ]


if __name__ == "__main__":
    main(measure, "run.should_stop")
