"""Options as text: for the terminal and for the documentation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from trackers.configuration.declaration import Declaration
from trackers.configuration.options import Options

_SECRET = re.compile(r"([?&](?:write_token|access_token|token|api_key|password)=)[^&#]+|(?<=://)([^/@:]*):[^/@]+@")


def shown(value: Any) -> Any:
    """A value as people may see it: passwords and tokens inside addresses are masked."""
    if not isinstance(value, str):
        return value
    return _SECRET.sub(lambda match: f"{match.group(1)}***" if match.group(1) else f"{match.group(2)}:***@", value)


def as_text(options: Options) -> str:
    """One line for each option: symbol, value, where it came from."""
    rows = [(name, _kconfig(shown(value)), options.source(name)) for name, value in options.items()]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {source}" for name, value, source in rows)


def as_json(options: Options) -> dict[str, dict[str, Any]]:
    """value and source by symbol."""
    return {name: {"value": shown(value), "source": options.source(name)} for name, value in options.items()}


def as_markdown(declarations: Mapping[str, Declaration]) -> str:
    """The reference of all options, a table for each menu."""
    parts = []
    for menu, group in groupby(declarations.values(), key=lambda declaration: declaration.menu):
        rows = "\n".join(_row(declaration) for declaration in group)
        parts.append(f"### {menu}\n\n| option | flag | values | default | |\n|---|---|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def _row(declaration: Declaration) -> str:
    needs = f" Needs `{declaration.depends}`." if declaration.depends else ""
    cells = (
        f"`{declaration.symbol}`",
        f"`{declaration.flag}`" + (f", `--no-{declaration.flag[2:]}`" if declaration.kind == "bool" else ""),
        _values(declaration),
        f"`{_kconfig(declaration.default)}`",
        declaration.help.replace("|", "\\|").replace("<", "&lt;") + needs,
    )
    return f"| {' | '.join(cells)} |"


def _values(declaration: Declaration) -> str:
    if declaration.choices:
        return ", ".join(declaration.choices)
    if declaration.limits:
        return f"{declaration.limits[0]} to {declaration.limits[1]}"
    return {"bool": "y, n", "string": "text"}.get(declaration.kind, "number")


def _kconfig(value: Any) -> str:
    if isinstance(value, bool):
        return "y" if value else "n"
    return f'"{value}"' if isinstance(value, str) else str(value)
