"""Names that MLflow refuses, mapped so that they can be read back, and so that no two names meet.

A refused character becomes ``_xHH_``, its code in hexadecimal: ``timing(s)/gen`` is ``timing_x28_s_x29_/gen`` and
``mean@1`` is ``mean_x40_1``. A name that looks like an escape has its underscore escaped. A name that is still too
long ends in ``_xH`` and 24 digits of its SHA-256; its original is in the run's ``metric_names.json``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

NAME_LENGTH = 250
"""mlflow/utils/validation.py MAX_ENTITY_KEY_LENGTH: metrics, params and tags."""

FILE_LENGTH = 120
"""Ours, so that a file name with step, time and digest stays below the 255 bytes of common filesystems."""

# mlflow/utils/validation.py validate_param_and_metric_name. Letters and digits of any script are "\w".
_NAME = re.compile(r"[/\w.\- :]")
# mlflow/tracking/client.py log_image: what a key, and so the file of an image, may have.
_FILE = re.compile(r"[A-Za-z0-9_./ -]")

_ESCAPED = re.compile(r"_x([0-9A-F]*)_")
_LOOKS_ESCAPED = re.compile(r"_x(H[0-9a-f]*|[0-9A-F]*)")
_SHORTENED = re.compile(r"(?<!_x5F)_xH[0-9a-f]{24}$")


def map_name(name: str) -> str:
    """A name as MLflow takes it for metrics, params and tags; unchanged where it can be."""
    return _map(name, _NAME, NAME_LENGTH)


def map_file(name: str) -> str:
    """A name as one component of an artifact's path: ASCII, with "~" for "/" as MLflow does for images."""
    return _map(name, _FILE, FILE_LENGTH).replace("/", "~")


def unmap(name: str, originals: Mapping[str, str] | None = None) -> str:
    """The original of a name that :func:`map_name` gave.

    Args:
        originals: the content of the run's ``metric_names.json``, which alone knows names that were too long.
    """
    if originals and name in originals:
        return originals[name]
    if len(name) == NAME_LENGTH and _SHORTENED.search(name):
        return name
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else "", name)


def _map(name: str, allowed: re.Pattern[str], length: int) -> str:
    if not name:
        return "_x_"
    escape = {i for i, char in enumerate(name) if not allowed.fullmatch(char)}
    escape |= _path_faults(name)
    for found in _LOOKS_ESCAPED.finditer(name):
        end = found.end()
        if found[1].startswith("H") or name[end : end + 1] == "_" or end in escape:
            escape.add(found.start())
    if not escape and len(name) <= length:
        return name
    mapped = "".join(f"_x{ord(char):X}_" if i in escape else char for i, char in enumerate(name))
    if len(mapped) <= length:
        return mapped
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return f"{mapped[: length - 27]}_xH{digest}"


def _path_faults(name: str) -> set[int]:
    """Where a name isn't a normal relative path: empty parts, "." and "..", a beginning with ".."."""
    faults = set()
    start = 0
    for part in name.split("/"):
        end = start + len(part)
        if part in (".", "..") or (start == 0 and part.startswith("..")):
            faults.add(start)
        elif not part:
            # The slash before an empty part, or, where there is none, the one behind it.
            faults.add(start - 1 if start else 0)
        start = end + 1
    return faults
