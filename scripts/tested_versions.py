"""Write trackers/tested-versions.txt: what `trackers setup` installs, from the constraints that the tests run with.

    python scripts/tested_versions.py

Run it in the environment of `make test` on Python 3.11, after a change of constraints/python-3.11.txt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from trackers.support.environments import requirements

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "trackers" / "tested-versions.txt"
TRACKERS = ("wandb", "trackio", "tensorboard", "mlflow")
HEAD = """\
# Versions that the tests ran with of what deliveries need, for `trackers setup`. Made by scripts/tested_versions.py.
"""


def needed(names: Iterable[str]) -> set[str]:
    """Distributions by their normal names, and all that they need here, extras included where they are asked for."""
    found: set[str] = set()
    waiting = [(name, frozenset[str]()) for name in names]
    seen = set(waiting)
    while waiting:
        name, extras = waiting.pop()
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # for another platform or Python
            continue
        found.add(normal(name))
        for line in lines:
            wanted, _, marker = line.partition(";")
            of = set(re.findall(r"""extra\s*==\s*['"]([\w.-]+)['"]""", marker))
            match = re.match(r"([\w.-]+)\s*(?:\[([^\]]*)\])?", wanted.strip())
            if match and (not of or of & extras):
                next_one = match[1], frozenset(filter(None, re.split(r"[,\s]+", match[2] or "")))
                if next_one not in seen:
                    seen.add(next_one)
                    waiting.append(next_one)
    return found


def normal(name: str) -> str:
    """A distribution's name as installers compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def text() -> str:
    """The file: exact versions, each for the Pythons that it takes."""
    lines = [HEAD.rstrip()]
    wanted = {line for name in TRACKERS for line in requirements(name)}
    roots = {match[0] for line in wanted if (match := re.match(r"[\w.-]+", line))}
    for name in sorted(needed(roots)):
        distribution = metadata.distribution(name)
        least = re.search(r">=\s*(3\.\d+)", distribution.metadata.get("Requires-Python") or "")
        marker = f"; python_version >= '{least[1]}'" if least and int(least[1][2:]) > 10 else ""
        lines.append(f"{name}=={distribution.version}{marker}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
