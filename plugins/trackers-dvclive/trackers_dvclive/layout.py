"""Where DVCLive and DVC look for what a run logged: dvclive 3.49, ``dvclive/live.py`` and ``dvclive/plots``.

``plots/metrics/<name>.tsv`` has a row for each value, ``metrics.json`` the last values, ``params.yaml`` the
configuration, and ``dvc.yaml`` says which of these are there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from trackers.backends.shared.append_file import file_name
from trackers.records import unnamed_float

METRICS, SYSTEM, TEXT = "plots/metrics", "plots/system", "text"
"""Folders of series: values at a step, values without one, and texts, which DVCLive has no place for."""
IMAGES, HISTOGRAMS, TABLES, MEDIA, ARTIFACTS = "plots/images", "plots/histograms", "tables", "media", "artifacts"
UNASKED = "trackers.json"
"""The document of results that nobody asked for: DVC shows what ``metrics.json`` has, and no other."""
FOLDERS = ("plots", TEXT, TABLES, MEDIA, ARTIFACTS)
"""Folders that the tracker owns; what else lies in them is removed."""
PICTURES = ("png", "jpg", "jpeg", "gif")
"""Suffixes of the images that DVC shows."""

PART_BYTES = 120
PATH_CHARS, PATH_PARTS = 400, 40
"""Longest part of a path, and the longest path and the most parts: others become one part."""
NEST = 32
"""Names of more parts than this aren't nested in ``metrics.json``."""


def item_path(stem: str, step: int | None, number: int, suffix: str) -> str:
    """Where an item lies: ``stem/<step>.<suffix>``; the further ones of a step in folders ``stem~1``, ``stem~2``, those
    without a step in ``stem~none``: ``dvc plots show`` fails where of a folder's pictures only some are numbered.
    """
    folder = f"{stem}{'~none' if step is None else ''}{f'~{number}' if number else ''}"
    return f"{folder}/{step or 0}.{suffix}"


def item_of(folder: str, filename: str) -> tuple[str, int | None] | None:
    """Name and step of such a path, without its suffix; None for another one. Earlier releases wrote ``<step>-1`` and
    ``none``."""
    parts = re.fullmatch(r"(.+?)(~none)?(?:~\d{1,6})?", folder)
    step = re.fullmatch(r"(\d{1,15}|none)(?:-\d+)?", filename)
    if parts is None or step is None:
        return None
    return parts[1], None if parts[2] or step[1] == "none" else int(step[1])


def path_of(name: str, taken: Collection[str] = ()) -> str:
    """A path for a name, without suffix: the name itself where it can be a path, else with a checksum at its end.

    Args:
        taken: paths, case folded, that other names have.
    """
    parts = name.split("/")
    made = [file_name(part, "_", PART_BYTES) for part in parts]
    made[:-1] = [f"{part}_" if _LIKE_FILE.fullmatch(part) else part for part in made[:-1]]
    path = "/".join(made)
    if len(path) > PATH_CHARS or len(made) > PATH_PARTS:
        path = file_name(name, "_", PART_BYTES)
    if path != name or _CHECKSUM_SUFFIX.search(path) or path.casefold() in taken:
        path += f"~{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"
    return path


_LIKE_FILE = re.compile(r"-?\d+(-\d+)?\..+|.*\.(tsv|jsonl)|none(-\d+)?\..+", re.IGNORECASE)
"""Names of files that the tracker writes: no folder has one."""
_CHECKSUM_SUFFIX = re.compile(r"~[0-9a-f]{8}$")


def header(folder: str, path: str) -> bytes:
    """The first line of a series. DVC draws the last column, over the one that ``dvc.yaml`` names."""
    if folder == TEXT:
        return b""
    title = path.rpartition("/")[2]
    title = f"{title}_" if title in ("timestamp", "step") else title
    columns = ["timestamp", title] if folder == SYSTEM else ["timestamp", "step", title]
    return "\t".join(columns).encode("utf-8", "replace") + b"\n"


def row(folder: str, time: float, step: int | None, value: Any) -> bytes:
    """A line of a series; time: Unix seconds, written as milliseconds as DVCLive does. A text is a line of JSON."""
    stamp = round(time * 1000)
    if folder == TEXT:
        return json.dumps({"timestamp": stamp, "step": step, "text": value}).encode() + b"\n"
    shown = repr(int(value) if isinstance(value, bool) else value)
    cells = [str(stamp), shown] if folder == SYSTEM else [str(stamp), str(step), shown]
    return "\t".join(cells).encode() + b"\n"


def step_of(folder: str, line: bytes) -> int | None:
    """The step of a line that :func:`row` made; None where it has none.

    Raises:
        ValueError, LookupError: somebody else made it.
    """
    step = json.loads(line)["step"] if folder == TEXT else int(line.split(b"\t", 2)[1])
    return None if step is None else int(step)


def value_of(line: bytes) -> Any:
    """The number of a line that :func:`row` made."""
    text = line.rsplit(b"\t", 1)[1].decode().strip()
    try:
        return int(text)
    except ValueError:
        return float(text)


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by their names' parts, as DVCLive has them; a name below another value stays one key."""
    whole: dict[str, Any] = {}
    for name, value in sorted(values.items(), key=lambda item: item[0].count("/")):
        value = unnamed_float(value)
        *folders, last = name.split("/")
        level: Any = whole
        for part in folders if len(folders) < NEST else ():
            level = level.setdefault(part, {}) if isinstance(level, dict) else None
        if isinstance(level, dict) and level is not whole and not isinstance(level.get(last), dict):
            level[last] = value
        else:
            whole[name] = value
    return whole


def document(
    has_params: bool, has_metrics: bool, folders: Collection[str], artifacts: Mapping[str, Any]
) -> dict[str, Any]:
    """``dvc.yaml``.

    Args:
        folders: those of METRICS, SYSTEM, IMAGES, HISTOGRAMS in which something lies. artifacts: fields by name.
    """
    plots: dict[str, Any] = {
        METRICS: {METRICS: {"x": "step"}},
        SYSTEM: {SYSTEM: {"x": "timestamp"}},
        IMAGES: IMAGES,
        HISTOGRAMS: {HISTOGRAMS: {"x": "count", "y": "from", "template": "bar_horizontal"}},
    }
    content: dict[str, Any] = {"params": ["params.yaml"]} if has_params else {}
    content |= {"metrics": ["metrics.json"]} if has_metrics else {}
    drawn = [plot for folder, plot in plots.items() if folder in folders]
    content |= {"plots": drawn} if drawn else {}
    return content | ({"artifacts": dict(artifacts)} if artifacts else {})


def artifact_name(name: str, taken: Collection[str]) -> str:
    """A name that DVC takes for an artifact: small letters, digits, "-" and "/"."""
    plain = re.sub(r"[^a-z0-9/-]+", "-", name.casefold()).strip("-/") or "artifact"
    plain = "/".join(part for part in (part.strip("-") for part in plain.split("/")) if part)
    if plain in taken:
        plain = f"{plain}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"
    return plain


def bars(counts: list[float], edges: list[float]) -> Iterator[dict[str, float]]:
    """A histogram as the data points of a plot."""
    for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
        yield {"from": low, "to": high, "count": count}
