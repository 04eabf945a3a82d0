"""All benchmarks, one after the other, each in a process of its own: ``python -m benchmarks [--quick] [NAME ...]``.

Each writes its figures into ``benchmarks/RESULTS.md`` when it ends, but for a quick try.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import Figure, cores, table

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "RESULTS.md"
PICTURE = HERE.parent / "docs" / "pictures" / "side-by-side.png"
NAMES = ("side_by_side", "log_call", "startup", "training_step", "delivery_rate", "sampling", "log_reading", "masking",
         "analysis", "plotting", "reading", "copying", "ranks", "nodes", "nodes_tls", "storing", "instruments",
         "inspection", "file_trackers", "stop_look", "console_capture", "finishing", "crowd", "sweep", "ui",
         "lake", "lake_collect", "lake_nodes")  # fmt: skip
MORE = {"sweep": ("--runs", "60")}
"""Options of a benchmark that would take the longest: 60 runs say what a thousand do."""
HEAD = """# Results

What `make bench` measured, written by it: the newest run of each program in this folder. Figures with a bound have a
verdict. [docs/performance.md](../docs/performance.md) says what they mean.
"""


def main(arguments: list[str]) -> int:
    """Run them; 1 if any bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones (default: {', '.join(NAMES)})")
    parser.add_argument("--quick", action="store_true", help="seconds, not minutes; too short to judge or keep")
    options = parser.parse_args(arguments)
    for name in options.names:
        if not (HERE / f"{name}.py").is_file():
            parser.error(f"there is no benchmark {name!r}: {', '.join(NAMES)}")
    missed = False
    for name in options.names or NAMES:
        title = (importlib.import_module(f"benchmarks.{name}").__doc__ or name).partition("\n")[0]
        load, began = os.getloadavg()[0], time.time()
        figures, code = run(name, quick=options.quick)
        text = table(title, figures) if figures else f"{title}\n  no figures: it ended with {code}"
        print(text, end="\n\n", flush=True)
        missed = missed or bool(code)
        if figures and not options.quick:
            kept = RESULTS.read_text() if RESULTS.exists() else ""
            RESULTS.write_text(with_section(kept, name, section(title, figures, began, load)))
    return int(missed)


def run(name: str, *, quick: bool) -> tuple[list[Figure], int]:
    """The figures of one benchmark, none if it broke, and its exit code."""
    more = ["--quick"] if quick else ["--picture", str(PICTURE)] if name == "side_by_side" else []
    command = [sys.executable, str(HERE / f"{name}.py"), "--json", *more, *MORE.get(name, ())]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("[{"):
            return [Figure(**{key: value for key, value in found.items() if key != "verdict"})
                    for found in json.loads(line)], done.returncode  # fmt: skip
    return [], done.returncode or 1


def section(title: str, figures: Sequence[Figure], began: float, load: float) -> str:
    """The text below a benchmark's heading: when and where, and a row for each figure.

    Args:
        began: Unix seconds. load: the machine's load average of the minute before.
    """
    day = time.strftime("%Y-%m-%d", time.gmtime(began))
    where = f"{day}, {cores()} cores, load {load:.1f} before, {platform.system()}, Python {platform.python_version()}."
    rows = []
    for figure in figures:
        name, value = figure.name.strip().replace("|", r"\|"), f"{figure.value:.4g} {figure.unit}".strip()
        rows.append(
            f"| {name} | {value} | {figure.bound} | {figure.verdict} |".replace("|  |", "| |").replace("|  |", "| |")
        )
    return "\n".join([title, "", where, "", "| | | bound | |", "|---|---|---|---|", *rows])


def with_section(text: str, name: str, body: str) -> str:
    """The whole page with one benchmark's section written anew, in the order of :data:`NAMES`."""
    parts = dict(part.split("\n", 1) for part in text.split("\n## ")[1:])
    parts[name] = f"\n{body}\n"
    order = sorted(parts, key=lambda known: NAMES.index(known) if known in NAMES else len(NAMES))
    return HEAD + "".join(f"\n## {known}\n\n{parts[known].strip()}\n" for known in order)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
