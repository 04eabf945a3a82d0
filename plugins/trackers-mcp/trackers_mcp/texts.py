"""What agents and people read of the tools: a skill file, ``llms.txt`` and the table of docs/agents.md."""

from __future__ import annotations

import inspect
import typing
from typing import Any

from trackers_mcp.server import INSTRUCTIONS
from trackers_mcp.tools import TOOLS, Tool, Tools


def summary(tool: Tool) -> str:
    """The first paragraph of a tool's description, on a line."""
    return " ".join((inspect.getdoc(getattr(Tools, tool.name)) or "").split("\n\n")[0].split())


def signature(tool: Tool) -> str:
    """A tool's arguments, as one calls it: ``history(run, metrics, points=60)``."""
    parts = []
    for name, parameter in list(inspect.signature(getattr(Tools, tool.name)).parameters.items())[1:]:
        default = parameter.default
        parts.append(name if default is inspect.Parameter.empty else f"{name}={default!r}")
    return f"{tool.name}({', '.join(parts)})"


def table() -> list[str]:
    """The rows of the documentation's table of tools."""
    rows = ["| tool | answers | what it gives |", "|---|---|---|"]
    for tool in TOOLS:
        allow = f" (with `--allow {tool.needs}`)" if tool.needs else ""
        rows.append(f"| `{signature(tool)}` | {tool.question} | {summary(tool)}{allow} |")
    return rows


def skill() -> str:
    """A skill file: when to use the tools, and how."""
    lines = [
        "---", "name: trackers", "description: Look into recorded machine-learning runs (metrics, settings, console, "
        "alerts, GPUs), compare them, find why one failed or diverged, and stop or annotate runs. Use when asked about "
        "training runs.", "---", "", "# Training runs", "", INSTRUCTIONS, "",
        "Without the MCP server the same is on the command line: `trackers ls`, `show`, `compare`, `best`, `diff`, "
        "`sql`, `logs`, `alerts`, `spans`, `plot`, `stop`, `edit`; each has `--json`.", "", "| tool | use it for |",
        "|---|---|",
    ]  # fmt: skip
    lines += [f"| `{signature(tool)}` | {tool.question}: {summary(tool)} |" for tool in TOOLS]
    lines += [
        "", "Ways that work:", "",
        "1. A run that diverged: `run` says NaN and largest values with their steps, `history` between two steps shows "
        "where it began, `console` with `search` what was printed then, `diff` to the best run what differs.",
        "2. Which setting is better: `best` with a metric, then `compare` of the first few; read its notes before you "
        "judge speed.",
        "3. Anything over many runs: `sql`.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def llms() -> str:
    """``llms.txt`` (https://llmstxt.org): what this package is, and where an agent reads on."""
    pages = (
        ("logging.md", "what a script writes"), ("sources.md", "which trackers, files and logs can be read"),
        ("commands.md", "all commands and their options"), ("agents.md", "the tools for agents"),
        ("analysis.md", "comparing and querying runs"), ("stopping.md", "stopping runs"),
        ("api.md", "the Python interface"),
    )  # fmt: skip
    lines = ["# trackers", "", "> Log a training run once; W&B, MLflow, TensorBoard, trackio and others get all of it. "
             "Reads all of them, too.", "", "## Tools", ""]  # fmt: skip
    lines += [f"- `{signature(tool)}`: {summary(tool)}" for tool in TOOLS]
    lines += ["", "## Pages", "", *(f"- [{name}](docs/{name}): {about}" for name, about in pages)]
    return "\n".join(lines) + "\n"


def types_of(tool: Tool) -> dict[str, Any]:
    """A tool's arguments by type, without its answer."""
    hints = typing.get_type_hints(getattr(Tools, tool.name))
    return {name: kind for name, kind in hints.items() if name != "return"}
