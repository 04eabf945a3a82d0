"""``python -m tests.chaos``: play rounds, print one table; exit code 0 if nothing is wrong."""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.chaos.audit import COUNTS
from tests.chaos.plan import TRACKERS, make
from tests.chaos.round import Outcome, Round, Shared


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", default="1", help="of the session; round k has the seed SEED:k")
    parser.add_argument("--round", type=int, help="play this one round of the session only")
    parser.add_argument("--trackers", default="", help="a,b or all; default a random choice for each round")
    parser.add_argument("--jobs", type=int, default=1, help="rounds at a time")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long training takes in a round")
    parser.add_argument("--agent", action="store_true", help="relays are forks of a host agent, which is killed, too")
    parser.add_argument("--keep", action="store_true", help="keep the directories of all rounds, not only of bad ones")
    options = parser.parse_args()
    names = TRACKERS if options.trackers == "all" else tuple(filter(None, options.trackers.split(",")))
    root = Path(tempfile.mkdtemp(prefix="trackers-chaos-"))
    chosen = range(options.rounds) if options.round is None else [options.round]
    os.environ.update(Shared(root).variables())
    began = time.monotonic()
    outcomes = play(
        chosen, options.seed, root, names,
        jobs=options.jobs, seconds=options.seconds, keep=options.keep, agent=options.agent,
    )  # fmt: skip
    print(table(outcomes))
    minutes = (time.monotonic() - began) / 60
    print(f"{len(outcomes)} rounds in {minutes:.1f} minutes, seed {options.seed}")
    clean = all(outcome.clean() for outcome in outcomes)
    if clean and not options.keep:
        shutil.rmtree(root, ignore_errors=True)
    else:
        print(f"kept: {root}")
    return 0 if clean else 1


def play(
    numbers: Iterable[int],
    seed: str,
    root: Path,
    trackers: Sequence[str] = (),
    *,
    jobs: int = 1,
    seconds: float = 4.0,
    keep: bool = False,
    agent: bool = False,
) -> list[Outcome]:
    """Play rounds of a session, saying on stderr how each went.

    The environment must have ``Shared(root).variables()``: the stores are read in this process.
    """
    shared = Shared(root)

    def one(number: int) -> Outcome:
        game = Round(make(f"{seed}:{number}", trackers, seconds=seconds, agent=agent), shared, number)
        outcome = game.play()
        print(line(number, outcome), file=sys.stderr, flush=True)
        if outcome.clean() and not keep:
            shutil.rmtree(game.directory, ignore_errors=True)
        return outcome

    try:
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, numbers))
    finally:
        shared.kill_agents()


def line(number: int, outcome: Outcome) -> str:
    """How a round went; of a bad one everything that repeats and explains it."""
    names = ",".join(outcome.plan.trackers)
    word = "ok " if outcome.clean() else "BAD"
    text = f"{word} {number:4} {outcome.seconds:5.1f} s {outcome.records} records {outcome.kills} kills {names}"
    text += f" {' '.join([outcome.delivered, *outcome.late_with])}"
    if outcome.clean():
        return text
    wrong = [f"    {f.tracker}: {counted(f)}; {'; '.join(f.lines[:4])}" for f in outcome.findings if f.total()]
    problem = [f"    {outcome.problem}"] if outcome.problem else []
    return "\n".join([text, f"    seed {outcome.plan.seed}: {'; '.join(outcome.actions)}", *problem, *wrong])


def counted(found: object) -> str:
    """What is wrong, by kind."""
    return ", ".join(f"{getattr(found, name)} {name}" for name in COUNTS if getattr(found, name))


def table(outcomes: Sequence[Outcome]) -> str:
    """One line for each tracker over all rounds, and what was done to them."""
    heads = ("tracker", "rounds", "calls", "held", *COUNTS)
    lines = ["  ".join(f"{head:>12}" for head in heads)]
    for tracker in TRACKERS:
        found = [f for outcome in outcomes for f in outcome.findings if f.tracker == tracker]
        calls = sum(o.calls for o in outcomes if tracker in o.plan.trackers)
        sums = [sum(getattr(f, name) for f in found) for name in ("held", *COUNTS)]
        lines.append("  ".join(f"{cell:>12}" for cell in (tracker, len(found), calls, *sums)))
    actions = collections.Counter(action.split()[0] for outcome in outcomes for action in outcome.actions)
    least, most = (pick((outcome.records for outcome in outcomes), default=0) for pick in (min, max))
    lines.append(f"records in a round: {least} to {most}; killed processes: {sum(o.kills for o in outcomes)}")
    lines.append("actions: " + ", ".join(f"{count} {name}" for name, count in actions.most_common()))
    how = collections.Counter(outcome.delivered for outcome in outcomes if not outcome.problem)
    failed = sum(bool(outcome.problem) for outcome in outcomes)
    lines.append(
        f"delivered by itself: {how['by itself']}; by one sync: {how['dead']} where nobody lived, {how['armed']} where "
        f"helpers died at a failpoint again and again, {how['late']} where the relay needed longer; "
        f"not at all: {failed}"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
