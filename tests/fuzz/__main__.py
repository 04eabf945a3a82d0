"""``python -m tests.fuzz --count 100000 --targets json,tb``: the long runs."""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import seeds
from tests.fuzz.drive import drive
from tests.fuzz.targets import USUAL


def main() -> int:
    """Fuzz, print what was found of each target, and end with 1 if something was."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="inputs of each target")
    parser.add_argument("--targets", default=",".join(USUAL),
                        help="default: %(default)s; log-NAME: those of one program")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input, to look at one again")
    parser.add_argument("--seeds", type=Path, help="where the seeds lie, made if they aren't there")
    parser.add_argument("--only", default="", help="make the seeds of one distribution in plugins/ alone: swanlab")
    options = parser.parse_args()
    bad = False
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        place = Path(name)
        corpus = options.seeds or place / "seeds"
        if not corpus.is_dir():
            seeds.make_plugged(corpus, options.only) if options.only else seeds.make(corpus)
        for target in options.targets.split(","):
            (place / target).mkdir()
            began, worked = time.monotonic(), time.process_time()
            result = drive(target, corpus, place / target, options.count, options.seed, options.first,
                           functools.partial(print, file=sys.stderr, flush=True))  # fmt: skip
            faults = sum(result.kinds.values())
            took, worked = time.monotonic() - began, time.process_time() - worked
            print(f"{target}: {result.count:,} inputs, {result.refused:,} refused in one line, {faults:,} faults; "
                  f"slowest {result.slowest:.1f} s, most memory {result.most_bytes / 1e6:.0f} MB; "
                  f"{took:.0f} s in all, {result.count / worked:.0f} a second of a processor; "
                  f"seed {options.seed}", flush=True)  # fmt: skip
            for kind, number in result.kinds.most_common():
                print(f"  {number:,} × {kind}\n    first: {result.faults[kind].replace(chr(10), chr(10) + '    ')}")
            bad = bad or faults > 0
    return bad


if __name__ == "__main__":
    sys.exit(main())
