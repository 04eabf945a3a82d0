"""The training process of a round: ``python -m tests.chaos.train '{…}'``.

It writes to a file of its own, which nothing of ours reads or writes, when each call began and when it returned:
``b <n> <time>`` and ``a <n> <time>``, then ``config <n>``, ``summary <n>``, ``ready``, ``finishing``, ``finished``.
What it does to itself besides is in :mod:`tests.chaos.deeds`.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from typing import Any

FAILPOINT = os.environ.pop("TRACKERS_FAILPOINT", "")  # for the helpers, not for this process

import trackers  # noqa: E402
from tests.chaos.deeds import FAR, LEAVES, ODD, Deeds, Voice  # noqa: E402
from tests.chaos.script import START_CONFIG, call  # noqa: E402
from trackers.support import failpoints  # noqa: E402


def main(job: dict[str, Any]) -> None:
    say = Voice(job["said"])
    if FAILPOINT:
        os.environ["TRACKERS_FAILPOINT"] = FAILPOINT
    if job.get("armed"):
        failpoints.arm(job["armed"])
    config = START_CONFIG if job["first"] == 0 else None
    run = trackers.init(
        job["trackers"], project=job["project"], name="chaos", id=job["id"], config=config, resume="allow"
    )
    # Helpers that are started from now on, in place of dead ones, don't die at the point again.
    os.environ.pop("TRACKERS_FAILPOINT", None)
    say("ready", len(job["trackers"]))
    chance = random.Random(f"{job['seed']}:pace:{job['first']}")
    burst = 0
    deeds = Deeds({job["first"] + at: kind for at, kind in job.get("deeds", ())}, run, say)
    for n in range(job["first"], job["first"] + job["count"]):
        made = call(job["seed"], n)
        values: dict[str, Any] = dict(made.metrics)
        if made.text:
            values["note"] = made.text
        if n % 11 == 3:
            values = {"odd": ODD[n % len(ODD)], **values}
        deeds.before(n)
        say("b", n, f"{time.time():.6f}")
        if deeds.call(n, lambda values=values, made=made: run.log(values, step=made.step)):  # type: ignore[misc]
            say("a", n, f"{time.time():.6f}")
        if made.config:
            run.config.update(made.config)
            say("config", n)
        if made.summary:
            run.summary.update(made.summary)
            say("summary", n)
        burst -= 1
        if burst <= 0:
            burst = chance.choice((1, 10, 100, 100))
            time.sleep(job["seconds"] * min(burst, 100) / job["count"] * chance.uniform(0.5, 1.5))
    deeds.settle()
    if job["preempting"]:
        run.mark_preempting()
        say("preempting")
    if job["end"] == "wait":
        say("waiting")
        time.sleep(600)
    if job.get("full_at_finish"):
        deeds.fill_until_finish(1.5)
        run.log({"side": 2.5}, step=FAR)
    say("finishing")
    if job["end"] in LEAVES:
        LEAVES[job["end"]][0]()
    elif job["end"] == "fail":
        run.fail(3, "asked to", timeout=job["timeout"])
    else:
        run.finish(timeout=job["timeout"])
    if job["end"] not in LEAVES:
        say("finished")
        if any(kind in ("fork", "thread") for _, kind in job.get("deeds", ())):
            time.sleep(0.3)  # for those that go on


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
