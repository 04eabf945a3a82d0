"""The one line that says where a run goes, and how a run shows itself in a notebook."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trackers.backends import registry
from trackers.records import escaped
from trackers.support.redaction import mask_source
from trackers.support.terminal import one_line
from trackers.tracker import RunInfo


def line(info: RunInfo, trackers: list[str]) -> str:
    """``run baseline (digits/abcd1234) → json, mlflow (sqlite:///…); journal in runs/digits/abcd1234``.

    A tracker whose files lie in the run's directory has no address of its own.
    """
    where = _short(info.directory)
    if info.mode == "offline":
        goal = f"offline, for {', '.join(trackers)}: deliver with `trackers sync {shlex.quote(where)}`"
    else:
        goal = ", ".join(_with_place(name, info) for name in trackers)
    again = f", attempt {len(info.attempts)}" if len(info.attempts) > 1 else ""
    return one_line(f"run {info.name} ({info.project}/{info.id}{again}) → {goal}; journal in {where}")


def html(info: RunInfo, status: Mapping[str, Mapping[str, Any]]) -> str:
    """A small table for notebooks: the run, and each tracker with its link and how it stands."""
    import html as escaping

    rows = []
    for name, entry in status.items():
        url = str(entry.get("url", ""))
        shown = escaping.escape(url)
        link = f'<a href="{shown}" target="_blank">{shown}</a>' if url.startswith(("http://", "https://")) else shown
        rows.append(
            f"<tr><td>{escaping.escape(name)}</td><td>{escaping.escape(entry['state'])}</td><td>{link}</td></tr>"
        )
    head = f"<b>{escaping.escape(info.name)}</b> ({escaping.escape(info.project)}/{escaping.escape(info.id)})"
    return f"<div>{head}<table>{''.join(rows)}</table><small>{escaping.escape(info.directory)}</small></div>"


def _with_place(name: str, info: RunInfo) -> str:
    place = getattr(registry.precheck(name), "place", None)
    where = mask_source(escaped(str(place(info)))) if place is not None else ""
    return f"{name} ({where})" if where else name


def _short(directory: str) -> str:
    try:
        relative = os.path.relpath(directory)
    except (OSError, ValueError):
        return directory
    return directory if relative.startswith(os.pardir + os.sep + os.pardir) else str(Path(relative))
