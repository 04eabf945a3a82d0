"""``trackers new-plugin``: a distribution that brings a tracker and all that goes with it, and whose tests pass."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from typing import Annotated

import typer

from trackers.backends import registry
from trackers.errors import UsageError
from trackers.readers import registry as readers
from trackers.support import plugins

TEMPLATE = Path(__file__).parent / "plugin_template"
FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "trackers_@NAME@/__init__.py": "init.py",
    "trackers_@NAME@/Kconfig": "Kconfig",
    "trackers_@NAME@/precheck.py": "precheck.py",
    "trackers_@NAME@/tracker.py": "tracker.py",
    "trackers_@NAME@/reader.py": "reader.py",
    "trackers_@NAME@/copies.py": "copies.py",
    "trackers_@NAME@/commands.py": "commands.py",
    "trackers_@NAME@/sql.py": "sql.py",
    "trackers_@NAME@/fuzz.py": "fuzz.py",
    "tests/test_@NAME@.py": "test.py",
}
"""Files of the distribution, and their templates."""


def new_plugin(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the tracker, the source and the command.")],
    directory: Annotated[
        Path | None, typer.Option("--directory", metavar="DIR", help="To be made; default: trackers-NAME.")
    ] = None,
) -> None:
    """Write a distribution with a tracker, a reader, options, a copy destination, a command and SQL, whose tests pass.

    It stores runs in a SQLite file: replace what you need, and take out what you don't. docs/plugins.md says what each
    part is for.

    Example: trackers new-plugin postgres
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*", name) or keyword.iskeyword(name) or name == registry.NONE:
        raise UsageError(f"{name!r} can't be a plug-in's name: small letters and digits, a letter first; not none")
    if name in (*registry.BUILT_IN, *readers.BUILT_IN, *plugins.OURS, *plugins.ours("source")):
        raise UsageError(f"{name!r} is built in: choose another name")
    home = directory or Path(f"trackers-{name}")
    if home.exists():
        raise UsageError(f"{home} exists: remove it, or give --directory")
    words = {"@NAME@": name, "@CLASS@": name.capitalize(), "@SYMBOL@": name.upper()}
    for path, template in FILES.items():
        text = (TEMPLATE / f"{template}.txt").read_text("utf-8")
        for word, meaning in words.items():
            path, text = path.replace(word, meaning), text.replace(word, meaning)
        file = home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    print(f"{home}: pip install {home}; python -m pytest {home}/tests")
