"""See whether the checkout can be released: versions, changelog and tag agree, and the wheel works alone.

    python scripts/release_check.py [--wheel] [--tag vX.Y.Z]
    python scripts/release_check.py --notes

Prints one line for each fault; exit code 1 if there is any. Uses the standard library alone. ``--wheel`` builds the
wheel, installs it into a folder of its own, and logs a run with it. ``--notes`` prints what CHANGELOG.md says of the
version, and checks nothing.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "trackers-relay"
VERSION = "trackers/_version.py"
PLACES = {
    VERSION: r'^__version__ = "(.+)"$',
    "pyproject.toml": r'^version = "(.+)"$',
    "CITATION.cff": r"^version: (.+)$",
    "packaging/conda/recipe.yaml": r'^  version: "(.+)"$',
}
"""Files that state the version, and how."""


def version(path: str, root: Path) -> str:
    """The version that a file states; "" if it states none."""
    found = re.search(PLACES[path], (root / path).read_text("utf-8"), re.M)
    return found[1] if found else ""


def notes(root: Path) -> str:
    """What CHANGELOG.md says of the version; "" if it says nothing."""
    changes = (root / "CHANGELOG.md").read_text("utf-8")
    section = re.search(rf"^## \[{re.escape(version(VERSION, root))}\][^\n]*\n(.*?)(?=^## \[|\Z)", changes, re.M | re.S)
    return section[1].strip() if section else ""


def _other_repository(root: Path) -> str:
    """What is wrong where the addresses in pyproject.toml lead elsewhere than the checkout came from; "" if nothing."""
    stated = re.search(r'^Repository = "https?://(.+)"$', (root / "pyproject.toml").read_text("utf-8"), re.M)
    origin = _git(root, "remote", "get-url", "origin")
    place = re.sub(r"^(?:[a-z+]+://)?(?:[^@/]*@)?([^:/]+)(?::\d+(?=/))?[:/](.+?)(?:\.git)?/?$", r"\1/\2", origin)
    if stated is None or place == stated[1] or not origin:
        return ""
    if origin[0] in "./":  # a clone of a folder
        return ""
    return f"pyproject.toml states the repository {stated[1]}, and origin is {place}"


def faults(root: Path, tag: str | None = None) -> Iterator[str]:
    """What isn't as a release needs it, one line each.

    Args:
        tag: the release's tag, where it exists already.
    """
    ours = version(VERSION, root)
    for path in PLACES:
        if version(path, root) != ours:
            yield f"{path} states version {version(path, root) or '(none)'}, {VERSION} {ours}"
    yield from _plugin_faults(root, ours)
    if elsewhere := _other_repository(root):
        yield elsewhere
    changes = (root / "CHANGELOG.md").read_text("utf-8")
    if not re.search(rf"^## \[{re.escape(ours)}\] - \d{{4}}-\d\d-\d\d$", changes, re.M):
        yield f"CHANGELOG.md has no section '## [{ours}] - YYYY-MM-DD'"
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## \[|\Z)", changes, re.M | re.S)
    if unreleased is not None and unreleased[1].strip():
        yield f"CHANGELOG.md has changes under [Unreleased]: they belong to [{ours}]"
    if tag is not None and tag != f"v{ours}":
        yield f"the tag {tag} isn't v{ours}"
    if tag is None and _git(root, "tag", "--list", f"v{ours}"):
        yield f"the tag v{ours} exists already: choose the next version"
    if _git(root, "status", "--porcelain", "--untracked-files=no"):
        yield "the checkout has changes that aren't committed"


def _plugin_faults(root: Path, ours: str) -> Iterator[str]:
    """Distributions in plugins/ are released with the package, under its version; each has what an index shows, and a
    test. Those that an extra names are installed by that name."""
    known = (root / "pyproject.toml").read_text("utf-8")
    stated_by_all = [path.read_text("utf-8") for path in sorted(root.glob("plugins/*/pyproject.toml"))]
    named = known + "".join(re.findall(r"^dependencies = .*", "\n".join(stated_by_all), re.M))
    for path in sorted(root.glob("plugins/*/pyproject.toml")):
        text, home = path.read_text("utf-8"), path.parent.relative_to(root)
        stated = re.search(r'^version = "(.+)"$', text, re.M)
        if stated is None or stated[1] != ours:
            yield f"{home}/pyproject.toml states version {stated[1] if stated else '(none)'}, {VERSION} {ours}"
        if f'name = "{path.parent.name}"' not in text:
            yield f"{home}/pyproject.toml has another name than its directory"
        if '[project.entry-points."trackers.' not in text and f'"{path.parent.name}"' not in named:
            yield f"{home}/pyproject.toml has no entry point of ours, and nothing of ours needs it"
        if not (path.parent / "README.md").is_file() or not [*path.parent.glob("tests/test_*.py")]:
            yield f"{home} has no README.md, or no test"
        name = path.parent.name.removeprefix("trackers-")
        if '"trackers.trackers"' in text and f'\n{name} = ["trackers-{name}"' not in known:
            yield f"pyproject.toml has no extra {name} that names {path.parent.name}"


def wheel_fault(root: Path) -> str:
    """What is wrong with the wheel; "" if nothing is."""
    with tempfile.TemporaryDirectory() as folder:
        site = f"{folder}/site"
        program = (
            f"import sys; sys.path.insert(0, {site!r}); import trackers\n"
            f"assert trackers.__file__.startswith({site!r}), trackers.__file__\n"
            f"assert trackers.__version__ == {version(VERSION, root)!r}, trackers.__version__\n"
            "run = trackers.init('json', inline=True, mode='offline'); run.log({'loss': 0.5}); run.finish()"
        )
        pip = [sys.executable, "-m", "pip"]
        steps = (
            [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, str(root)],
            [*pip, "install", "--quiet", "--no-deps", "--no-index", "--find-links", folder, "--target", site, PACKAGE],
            [sys.executable, "-c", program],
        )
        for step in steps:
            done = subprocess.run(step, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"the wheel can't be used: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1]}"
    return ""


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S607


def main() -> None:
    parser = argparse.ArgumentParser(description="See whether the checkout can be released.")
    parser.add_argument("--tag", help="the release's tag, where it exists already")
    parser.add_argument("--wheel", action="store_true", help="also build the wheel and try it")
    parser.add_argument("--notes", action="store_true", help="print what the changelog says of the version")
    arguments = parser.parse_args()
    if arguments.notes:
        print(notes(ROOT))
        return
    found = list(faults(ROOT, arguments.tag))
    if arguments.wheel and (fault := wheel_fault(ROOT)):
        found.append(fault)
    for line in found:
        print(f"release_check: {line}", file=sys.stderr)
    if found:
        sys.exit(1)
    print(f"{version(VERSION, ROOT)} can be released")


if __name__ == "__main__":
    main()
