"""Write the files of a new built-in tracker from a template that passes the conformance kit.

    python scripts/new_tracker.py NAME

Makes trackers/backends/NAME and tests/backends/NAME, and adds NAME to the tables of trackers in
trackers/backends/registry.py and docs/choosing-trackers.md. Existing files are never overwritten. Uses the standard
library alone.
"""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "scripts/tracker_template"
REGISTRY = "trackers/backends/registry.py"
PAGE = "docs/choosing-trackers.md"

TABLE = re.compile(
    r"(?P<before>BUILT_IN: dict\[str, str\] = \{\n.*?    for name in \(\n)(?P<rows>(?: +\"\w+\",\n)+)", re.S
)
ROWS = re.compile(r"(?P<rows>^\| `wandb` \|.*\n(?:\| `\w+` \|.*\n)+)", re.M)
IMPORTS = re.compile(r"(?:^from trackers\..*\n)+", re.M)
ROW = "| `{name}` | ✓ | ✓ | – | – | ✓ | – |\n"


def files(name: str) -> dict[str, str]:
    """The new files' paths, relative to the checkout, and their texts."""
    backend, tests = f"trackers/backends/{name}", f"tests/backends/{name}"
    first = {
        f"{backend}/__init__.py": f'"""{name}: the tracker, and what ``init`` asks of it."""\n',
        f"{tests}/__init__.py": "",
    }
    parts = {
        f"{backend}/tracker.py": "tracker",
        f"{backend}/precheck.py": "precheck",
        f"{tests}/test_tracker.py": "test_tracker",
    }
    texts = {path: (TEMPLATE / f"{part}.py.txt").read_text("utf-8") for path, part in parts.items()}
    texts = {path: text.replace("@NAME@", name).replace("@CLASS@", name.capitalize()) for path, text in texts.items()}
    return first | {path: IMPORTS.sub(_in_order, text) for path, text in texts.items()}


def _in_order(block: re.Match[str]) -> str:
    return "".join(sorted(block[0].splitlines(keepends=True)))


def new_tracker(name: str, root: Path) -> list[str]:
    """Write the files below ``root``; the paths that were written or changed.

    Raises:
        ValueError: the name can't be one, or is taken; or a table that gets a line isn't found. Nothing is written.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*", name) or keyword.iskeyword(name) or name in ("none", "shared"):
        raise ValueError(
            f"{name!r} can't be a tracker's name: small letters and digits, a letter first; not none, shared"
        )
    texts = {root / path: text for path, text in files(name).items()}
    taken = [path for path in texts if path.exists()]
    if taken:
        raise ValueError(f"{taken[0].relative_to(root)} is there already: remove it, or choose another name")
    registry, page = (root / REGISTRY).read_text("utf-8"), (root / PAGE).read_text("utf-8")
    table, rows = TABLE.search(registry), ROWS.search(page)
    if table is None or rows is None:
        raise ValueError(f"{PAGE if table else REGISTRY} has no table of trackers as this script knows it")
    if f'"{name}",' in table["rows"]:
        raise ValueError(f"{REGISTRY} has a tracker {name} already")
    texts[root / REGISTRY] = f'{registry[: table.end()]}        "{name}",\n{registry[table.end() :]}'
    texts[root / PAGE] = page[: rows.end()] + ROW.format(name=name) + page[rows.end() :]
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return [path.relative_to(root).as_posix() for path in texts]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the files of a new built-in tracker.")
    parser.add_argument("name", help="small letters and digits: what --tracker takes")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to write to (default: this one)")
    arguments = parser.parse_args()
    try:
        written = new_tracker(arguments.name, arguments.root)
    except (ValueError, OSError) as error:
        sys.exit(f"new_tracker: {error}")
    print(*written, sep="\n")
    tests = f"tests/backends/{arguments.name} tests/backends/test_built_in.py"
    print(f"\nThey pass: python -m pytest {tests}\nWhat to change now: CONTRIBUTING.md, Add a tracker")


if __name__ == "__main__":
    main()
