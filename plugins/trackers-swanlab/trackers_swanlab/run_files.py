"""A SwanLab run's directory: its records, the names of its metrics, and its configuration.

``run-<id>.swanlab`` holds protocol-buffer records in LevelDB's log format (``leveldb_log.py``; header ``:SWL``, 0xE1D6,
version 2). The messages are those of swanlab 0.10 (``swanlab/proto``), written here without its package, which demands
an older protobuf than other trackers do. ``files/config.yaml`` is the configuration, ``media/<kind>`` holds the files
that media records name. https://github.com/SwanHubX/SwanLab

What this package writes has two fields more in a ``Record``, which SwanLab skips: ``mark`` and ``generation``.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trackers.formats import leveldb_log
from trackers.formats.yaml_text import yaml_text
from trackers.records import name_floats

MAGIC = (b":SWL", 0xE1D6, 2)
SUFFIX = ".swanlab"

KEY_CHARS = 512
"""Longest name of a metric: swanlab/sdk/internal/pkg/constraints, as the rules in :func:`stored_name`."""
TEXT_CHARS = 512
"""Longest name, group and tag of a run."""
NOTES_CHARS = 1024
PROJECT_CHARS = 100
SYSTEM_PREFIX = "__swanlab__."
"""How the names of the machine's metrics begin."""

SCALAR, IMAGE, AUDIO, TEXT, VIDEO, ECHARTS, OBJECT3D, MOLECULE, HTML = range(1, 10)
FOLDERS = {
    IMAGE: "image", AUDIO: "audio", TEXT: "text", VIDEO: "video", ECHARTS: "echarts", OBJECT3D: "object3d",
    MOLECULE: "molecule", HTML: "html",
}  # fmt: skip
"""Column types, and the folder of each one's files below ``media``."""
CUSTOM_CLASS, SYSTEM_CLASS = 1, 2
PUBLIC_SECTION, SYSTEM_SECTION = 3, 4
LINE_CHART = 1
FINISHED, CRASHED, ABORTED = 1, 2, 3
SAVE_CUSTOM, SAVE_CONFIG = 0, 1
START_NUM, FINISH_NUM, CONFIG_NUM = -1, -2, -3
"""Numbers of the records that a file has once."""

OURS, NO_STEP = 1, 2
"""Values of ``mark``: a record of this package; one of a value that has no step."""

_INT, _DOUBLE, _TEXT, _BYTES = "int", "double", "text", "bytes"
MESSAGES: dict[str, dict[int, tuple[str, str]]] = {
    "Record": {
        1: ("num", _INT), 2: ("timestamp", "Timestamp"), 10: ("start", "Start"), 11: ("finish", "Finish"),
        12: ("column", "Column"), 13: ("scalar", "Scalar"), 14: ("media", "Media"), 16: ("log", "Log"),
        20: ("save", "Save"), 500_000_000: ("mark", _INT), 500_000_001: ("generation", _INT),
    },
    "Timestamp": {1: ("seconds", _INT), 2: ("nanos", _INT)},
    "Start": {
        1: ("project", _TEXT), 2: ("workspace", _TEXT), 4: ("name", _TEXT), 5: ("description", _TEXT),
        6: ("tags*", _TEXT), 7: ("group", _TEXT), 8: ("job_type", _TEXT), 9: ("color", _TEXT), 10: ("id", _TEXT),
        12: ("started_at", "Timestamp"),
    },
    "Finish": {1: ("state", _INT), 2: ("error", _TEXT), 3: ("finished_at", "Timestamp")},
    "Column": {
        1: ("column_class", _INT), 2: ("column_type", _INT), 3: ("column_key", _TEXT), 4: ("column_name", _TEXT),
        5: ("section_name", _TEXT), 6: ("section_type", _INT), 8: ("chart_index", _TEXT), 9: ("chart_name", _TEXT),
        10: ("chart_type", _INT), 11: ("metric_name", _TEXT), 13: ("x_axis", _TEXT), 14: ("hidden", _INT),
    },
    "Scalar": {
        1: ("key", _TEXT), 2: ("step", _INT), 3: ("type", _INT), 4: ("timestamp", "Timestamp"), 5: ("value", "Number"),
    },
    "Number": {1: ("number", _DOUBLE)},
    "Media": {
        1: ("key", _TEXT), 2: ("step", _INT), 3: ("type", _INT), 4: ("timestamp", "Timestamp"), 5: ("value", "Items"),
    },
    "Items": {1: ("items*", "Item")},
    "Item": {1: ("filename", _TEXT), 2: ("sha256", _TEXT), 3: ("size", _INT), 4: ("caption", _TEXT)},
    "Log": {1: ("line", _TEXT), 2: ("level", _INT), 3: ("timestamp", "Timestamp"), 4: ("epoch", _INT)},
    "Save": {1: ("name", _TEXT), 2: ("source_path", _TEXT), 3: ("target_path", _TEXT), 5: ("type", _INT)},
}  # fmt: skip
"""Fields by number: name (with "*" where it may repeat) and type. Fields that aren't used here are left out."""

_WRITTEN = {
    message: {field.rstrip("*"): (number, kind, field.endswith("*")) for number, (field, kind) in fields.items()}
    for message, fields in MESSAGES.items()
}
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_NUMBER = struct.Struct("<d")


def encode(values: Mapping[str, Any], message: str = "Record") -> bytes:
    """A message of these fields. Text that isn't UTF-8 gets question marks."""
    out = bytearray()
    fields = _WRITTEN[message]
    for name, value in values.items():
        number, kind, repeated = fields[name]
        for item in value if repeated else (value,):
            if kind == _INT:
                _varint(out, number << 3 | _VARINT)
                _varint(out, item)
            elif kind == _DOUBLE:
                _varint(out, number << 3 | _FIXED64)
                out += _NUMBER.pack(item)
            else:
                data = item.encode("utf-8", "replace") if kind == _TEXT else encode(item, kind)
                _varint(out, number << 3 | _LENGTH)
                _varint(out, len(data))
                out += data
    return bytes(out)


def decode(data: bytes, message: str = "Record") -> dict[str, Any]:
    """The fields of a message that are known here. Absent ones are absent, also where their value is 0.

    Raises:
        ValueError: it is no such message.
    """
    fields, decoded, offset, end = MESSAGES[message], dict[str, Any](), 0, len(data)
    while offset < end:
        key, offset = _read_varint(data, offset)
        number, wire = key >> 3, key & 7
        value: Any
        if wire == _VARINT:
            value, offset = _read_varint(data, offset)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
            value, offset = data[offset : offset + size], offset + size
        elif wire == _LENGTH:
            size, offset = _read_varint(data, offset)
            value, offset = data[offset : offset + size], offset + size
        else:
            raise ValueError(f"wire type {wire}")
        if offset > end:
            raise ValueError("a message that ends too early")
        if number in fields:
            name, kind = fields[number]
            _check_wire(kind, wire)
            if kind == _INT:
                value -= (value >> 63) << 64
            elif kind == _DOUBLE:
                (value,) = _NUMBER.unpack(value)
            elif kind == _TEXT:
                value = value.decode("utf-8", "replace")
            else:
                value = decode(value, kind)
            if name.endswith("*"):
                decoded.setdefault(name[:-1], []).append(value)
            else:
                decoded[name] = value
    return decoded


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file as far as it is whole.

    Raises:
        NotFound: no such file, or none of SwanLab's. ValueError: a record is none.
    """
    for content, _ in leveldb_log.scan(path, MAGIC, SUFFIX):
        yield decode(content)


def timestamp(time: float) -> dict[str, int]:
    """Unix seconds as a Timestamp."""
    seconds = math.floor(time)
    nanos = round((time - seconds) * 1e9)
    return {"seconds": seconds + nanos // 10**9, "nanos": nanos % 10**9}


def unix(stamp: Mapping[str, int] | None) -> float:
    """A Timestamp as Unix seconds; 0.0 where there is none."""
    return stamp.get("seconds", 0) + stamp.get("nanos", 0) / 1e9 if stamp else 0.0


_EDGE_BEFORE = re.compile(r"_*[./]|__+swanlab__\.")
_EDGE_AFTER = re.compile(r"[./]_*$")
_ESCAPED_BEFORE = re.compile(r"_+[./]|___+swanlab__\.")
_ESCAPED_AFTER = re.compile(r"[./]_+$")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def stored_name(name: str) -> str:
    """A metric's name as SwanLab takes it: no dot or slash at an end, no control character, at most KEY_CHARS.

    "/loss" becomes "_/loss", "loss/" "loss/_"; a name that begins or ends so already gets one underscore more, so that
    no two names meet and :func:`logged_name` finds the one that was logged. Too long a name ends in its checksum.
    """
    stored = _CONTROL.sub("_", name) or "(no name)"
    if _EDGE_BEFORE.match(stored):
        stored = f"_{stored}"
    if _EDGE_AFTER.search(stored):
        stored = f"{stored}_"
    if len(stored) > KEY_CHARS:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        stored = f"{stored[: KEY_CHARS - len(digest) - 1]}_{digest}"
    return stored


def logged_name(stored: str) -> str:
    """The name that :func:`stored_name` got, but for control characters and lengths that SwanLab doesn't take."""
    if _ESCAPED_BEFORE.match(stored):
        stored = stored[1:]
    return stored[:-1] if _ESCAPED_AFTER.search(stored) else stored


def config_text(config: Mapping[str, Any]) -> str:
    """``files/config.yaml``; NaN and infinities are their names."""
    rows = {key: {"value": value, "desc": "", "sort": index} for index, (key, value) in enumerate(config.items())}
    return yaml_text(name_floats(rows))


def _varint(out: bytearray, value: int) -> None:
    value &= 0xFFFF_FFFF_FFFF_FFFF
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if offset >= len(data) or shift > 63:
            raise ValueError("a number that doesn't end")
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, offset
        shift += 7


def _check_wire(kind: str, wire: int) -> None:
    if wire != (_VARINT if kind == _INT else _FIXED64 if kind == _DOUBLE else _LENGTH):
        raise ValueError(f"a field of {kind} with wire type {wire}")
