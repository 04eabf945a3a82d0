"""Write docs/commands.md, the reference of all commands, from the commands themselves.

python scripts/command_reference.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/commands.md"
HEAD = """# Commands

All commands of `trackers`, with their arguments and options. `python scripts/command_reference.py` writes this page.
`trackers COMMAND --help` shows the same. Options of runs have [a page of their own](options.md).
"""


def page() -> str:
    """The page's text."""
    from trackers.cli.app import app, commands

    lines, before = [HEAD], ""
    for panel, name, _ in commands.overview():
        if panel != before:
            lines.append(f"## {panel}\n")
            before = panel
        command = commands[name]
        for inner, one in getattr(command, "commands", {"": command}).items():
            if one.hidden:
                continue
            lines += _command(f"{app.info.name or 'trackers'} {name} {inner}".rstrip(), one)
    return "\n".join(lines).rstrip() + "\n"


def _command(name: str, command: Any) -> Iterator[str]:
    shown = [param for param in command.params if not getattr(param, "hidden", False)]
    arguments = [param for param in shown if param.param_type_name == "argument"]
    options = [param for param in shown if param.param_type_name == "option"]
    usage = [name, *(["[OPTIONS]"] if options else []), *(_metavar(param) for param in arguments)]
    yield f"### {name}\n"
    yield f"```text\n{' '.join(usage)}\n```\n"
    yield _text(command.help or "") + "\n"
    if not command.context_settings.get("help_option_names", True):
        yield f"```text\n{_printed_help(name)}\n```\n"
        return
    if shown:
        yield "| | |\n|---|---|"
        for param in (*arguments, *options):
            names = _metavar(param) if param in arguments else ", ".join(param.opts)
            if param in options and param.metavar:
                names += f" {param.metavar}"
            yield f"| `{_cell(names)}` | {_cell(_text(param.help or ''))} |"
        yield ""


def _printed_help(name: str) -> str:
    """What a program that parses its own arguments prints of them."""
    program, *words = name.split()
    command = [sys.executable, "-m", program, *words, "--help"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120", "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout.strip()


def _metavar(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def _text(text: str) -> str:
    return re.sub(r"``(.+?)``", r"`\1`", text).replace("<", "&lt;")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page(), "utf-8")
    print(f"Saved {PAGE.relative_to(ROOT)}")
