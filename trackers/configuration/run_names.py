"""Names that nobody gave: automatic project and run names, and templates filled from the config."""

from __future__ import annotations

import difflib
import hashlib
import re
import time as clock
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trackers.errors import UsageError, examples
from trackers.records import flatten

_UNSAFE = re.compile(r"[^\w.-]+")
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_MODEL_KEYS = ("model", "model_name", "model/name", "model/type", "model_type", "model/model_type")
_MAX_SHOWN = 20


def project_name(config: Mapping[str, Any], program: str, cwd: Path) -> str:
    """A project's name: the model's name in the config, else the working directory's, and five hex digits.

    The digits come from the directory's path: runs of one directory share a project, and equally named
    directories don't.
    """
    leaves = _leaves(config)
    model = next((leaves[key] for key in _MODEL_KEYS if isinstance(leaves.get(key), str) and leaves[key]), None)
    base = _safe(model or cwd.name) or _safe(_script(program)) or "project"
    digest = hashlib.sha256(str(cwd.absolute()).encode(errors="surrogateescape")).hexdigest()
    return f"{base}-{digest[:5]}"


def run_name(program: str, time: float) -> str:
    """A run's name: the script's with the local date and time, ``train_20251121_121029``. time: Unix seconds."""
    return f"{_safe(_script(program)) or 'run'}_{clock.strftime('%Y%m%d_%H%M%S', clock.localtime(time))}"


def fill_template(template: str, config: Mapping[str, Any]) -> str:
    """Fill ``{model}_{optimizer}`` from the config.

    A nested value is named by its path, with "." or "/" between the keys. ``{{`` and ``}}`` give braces. Nothing
    but the names of values is understood between braces: no attributes, no format.

    Raises:
        UsageError: a name that the config lacks or that names no single value, or a lone brace.
    """
    leaves = _leaves(config)

    def fill(match: re.Match[str]) -> str:
        if match.group() in ("{{", "}}"):
            return match.group()[0]
        if match.group(1) is None:
            raise UsageError(f"template {template!r}: lone {match.group()!r}; write it twice for the character itself")
        return _text(leaves, match.group(1), template)

    return _FIELD.sub(fill, template)


def _text(leaves: Mapping[str, Any], name: str, template: str) -> str:
    key = _key(name)
    value = leaves.get(key)
    if key in leaves and not isinstance(value, (Mapping, list, tuple, set)):
        return str(value)
    below = [known for known in leaves if known.startswith(key + "/")]
    if key in leaves or below:
        what = f"; its values: {examples(below, _MAX_SHOWN)}" if below else ""
        raise UsageError(f"template {template!r}: {name!r} isn't a single value{what}")
    near = difflib.get_close_matches(key, leaves, n=1) or [known for known in leaves if known.endswith("/" + key)]
    hint = f": did you mean {{{near[0]}}}?" if near else "."
    known = f" Known: {examples(leaves, _MAX_SHOWN)}" if leaves else " The config is empty."
    raise UsageError(f"template {template!r}: the config has no {name!r}{hint}{known}")


def _leaves(config: Mapping[str, Any]) -> dict[str, Any]:
    return {_key(name): value for name, value in flatten(dict(config))}


def _key(name: str) -> str:
    return name.replace(".", "/")


def _script(program: str) -> str:
    path = Path(program)
    if path.name == "__main__.py":  # python -m package
        return path.parent.name
    if path.stem in ("ipykernel_launcher", "colab_kernel_launcher"):
        return "notebook"
    return "python" if program in ("", "-c", "-") else path.stem


def _safe(name: str) -> str:
    return _UNSAFE.sub("-", name).strip("-.")
