"""Ways to damage a file: blindly, byte by byte, and with knowledge of what it is made of."""

from __future__ import annotations

import bz2
import contextlib
import copy
import gzip
import json
import lzma
import random
import re
import sqlite3
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import zstandard

ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, 2**31, 2**63, -(2**63) - 1, 10**40, 1e308, float("nan"), float("inf"), "", "NaN",
    "Infinity", "x", "\ud800", "\x00", "a\nb", "../../etc/passwd", "/etc/passwd", "file:///etc/passwd", "9" * 400, [],
    {}, [[]], [None], [1, "x"], {"": None}, {"a": {"b": [1]}}, "2026-13-45T99:99:99", "1e999", -100, "\u202e", [{}],
    {"_type": "image-file", "path": "../x"}, {"_type": "table-file", "path": 3}, "x" * 5000, list(range(300)),
    {"_type": "histogram", "values": [1], "packedBins": {"min": 0, "size": 1, "count": 10**12}},
]  # fmt: skip
"""Values that stand where something else is expected."""
TEXTS = [value for value in ODD if isinstance(value, str) and value.isprintable()]

NUMBERS = [b"0", b"-1", b"9" * 30, b"9" * 5000, b"1e999", b"NaN", b"-Infinity", b"0.", b"1,2,3", b"\xff", b"2" * 18]
PIECES = [b"\x00" * 8, b"\xff" * 8, b"[" * 3000, b'{"a":' * 3000, b"\r\n", b"|", b":", b"\x1b[31m", b'"', b"\\",
          b"\n", b"]", b"}", b",", b"\\ud800", b"1" * 3000, b" " * 3000, b"\xf0\x9f", b"iteration 7/ 9 |",
          b"..."]  # fmt: skip

Mutation = Callable[[bytes, random.Random], bytes]


def flip(data: bytes, dice: random.Random) -> bytes:
    """A few bytes are others."""
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 8))):
        if changed:
            changed[dice.randrange(len(changed))] = dice.choice((0, 0xFF, 0x7F, 0x80, dice.randrange(256)))
    return bytes(changed)


def cut(data: bytes, dice: random.Random) -> bytes:
    """The end is missing."""
    return data[: dice.randrange(len(data) + 1)]


def drop(data: bytes, dice: random.Random) -> bytes:
    """A part is missing."""
    at = dice.randrange(len(data) + 1)
    return data[:at] + data[at + dice.choice((1, 4, 40, 400, 4000)) :]


def repeat(data: bytes, dice: random.Random) -> bytes:
    """A part is there twice, or many times."""
    at = dice.randrange(len(data) + 1)
    part = data[at : at + dice.choice((1, 8, 80, 800))]
    return data[:at] + part * dice.choice((2, 3, 50)) + data[at:]


def swap(data: bytes, dice: random.Random) -> bytes:
    """Two parts have changed places."""
    one, other = sorted((dice.randrange(len(data) + 1), dice.randrange(len(data) + 1)))
    size = dice.choice((1, 4, 16, 64))
    return (
        data[:one]
        + data[other : other + size]
        + data[one + size : other]
        + data[one : one + size]
        + data[other + size :]
    )


def insert(data: bytes, dice: random.Random) -> bytes:
    """Something is there that doesn't belong."""
    at = dice.randrange(len(data) + 1)
    return data[:at] + dice.choice(PIECES) + data[at:]


def number(data: bytes, dice: random.Random) -> bytes:
    """A number in the text is an odd one."""
    found = list(re.finditer(rb"\d{1,20}", data[:200_000]))
    if not found:
        return insert(data, dice)
    match = dice.choice(found)
    return data[: match.start()] + dice.choice(NUMBERS) + data[match.end() :]


def length(data: bytes, dice: random.Random) -> bytes:
    """Four bytes, which may be a length or a count, claim much."""
    if len(data) < 8:
        return flip(data, dice)
    at = dice.randrange(len(data) - 4)
    return data[:at] + struct.pack("<I", dice.choice((0xFFFFFFFF, 0x7FFFFFFF, 1 << 30, 0, 1))) + data[at + 4 :]


BYTES: tuple[Mutation, ...] = (flip, cut, drop, repeat, swap, insert, number, length)


def blind(data: bytes, dice: random.Random) -> bytes:
    """One to three of :data:`BYTES`."""
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        data = dice.choice(BYTES)(data, dice)
    return data


def odd(dice: random.Random) -> Any:
    """One of :data:`ODD`: a copy, as a later change may be inside of it."""
    return copy.deepcopy(dice.choice(ODD))


def json_value(value: Any, dice: random.Random) -> Any:
    """A JSON value with one place in it changed: another value, gone, renamed, doubled, or nested deeply."""
    places: list[tuple[Any, Any]] = []

    def walk(inner: Any) -> None:
        for key, item in list(inner.items()) if isinstance(inner, dict) else enumerate(inner):
            places.append((inner, key))
            if isinstance(item, (dict, list)):
                walk(item)

    if not isinstance(value, (dict, list)) or not value:
        return odd(dice)
    walk(value)
    holder, key = dice.choice(places)
    what = dice.randrange(12)
    if what < 7:
        holder[key] = odd(dice)
    elif what == 7:
        del holder[key]
    elif what == 8 and isinstance(holder, dict):
        holder[str(dice.choice(ODD))] = holder.pop(key)
    elif what == 9 and isinstance(holder, list):
        holder[key:key] = [holder[key]] * dice.choice((1, 5))
    elif what == 10:
        deep: Any = []
        for _ in range(dice.choice((100, 300, 450, 900))):
            deep = [deep] if dice.random() < 0.5 else {"a": deep}
        holder[key] = deep
    else:
        other, place = dice.choice(places)
        with_other = other.get(place) if isinstance(other, dict) else other[place] if place < len(other) else None
        holder[key] = json.loads(json.dumps(with_other)) if with_other is not holder else None
    return value


def dumped(value: Any, indent: int = 0) -> bytes:
    """A JSON value as text, surrogates escaped.

    Args:
        indent: of each level, a line for each value; 0: all on one line.
    """
    text = json.dumps(value).encode("utf-8", "surrogatepass")
    if not indent:
        return text
    try:  # json.dumps takes a hundred times as long for it
        return msgspec.json.format(text, indent=indent)
    except (msgspec.DecodeError, RecursionError):  # NaN, say
        return json.dumps(value, indent=indent).encode("utf-8", "surrogatepass")


def json_file(data: bytes, dice: random.Random) -> bytes:
    """A JSON file with its values changed."""
    try:
        value = json.loads(data)
    except ValueError:
        return blind(data, dice)
    for _ in range(dice.choice((1, 1, 2, 4))):
        value = json_value(value, dice)
    try:
        return dumped(value, indent=2)
    except RecursionError:  # deeper than Python writes JSON: as text it may be deeper still
        return b"[" * 100_000 + data


def json_in_lines(data: bytes, dice: random.Random) -> bytes:
    """A file with JSON on single lines (a stream; our log's lists), one of them changed in its place."""
    lines = data.splitlines(keepends=True)
    for number in dice.sample(range(len(lines)), min(len(lines), 40)):
        text = lines[number].strip().removesuffix(b",")
        try:
            value = json.loads(text)
        except ValueError:
            continue
        if isinstance(value, dict):
            lines[number] = lines[number].replace(text, dumped(json_value(value, dice)))
            break
    return b"".join(lines)


def fields(data: bytes, dice: random.Random) -> bytes:
    """A text with lines and cells: one is doubled, swapped, odd, or very long."""
    separator = dice.choice((b",", b"|", b":", b" ", b"/"))
    lines = data.split(b"\n")
    at = dice.randrange(len(lines))
    cells = lines[at].split(separator)
    cell = dice.randrange(len(cells))
    piece = dice.choice([*NUMBERS, *PIECES, str(dice.choice(ODD)).encode("utf-8", "replace")])
    cells[cell] = dice.choice((piece, cells[cell] + piece, b"", cells[cell] * 50, separator * 2000))
    lines[at] = separator.join(cells)
    if dice.random() < 0.2:
        lines.insert(dice.randrange(len(lines)), dice.choice(lines) * dice.choice((1, 20)))
    return b"\n".join(lines)


def zipped(data: bytes, dice: random.Random) -> bytes:
    """Gzipped, after or before it was damaged; sometimes unpacking to much."""
    if dice.random() < 0.1:
        return gzip.compress(b"0" * 3_000_000 + data, 1)
    return blind(gzip.compress(data, 1), dice) if dice.random() < 0.5 else gzip.compress(blind(data, dice), 1)


def repacked(data: bytes, dice: random.Random) -> bytes:
    """Packed or in another Unicode, damaged before or afterwards, or not at all."""
    text = fields(data, dice).decode("utf-8", "replace") if dice.random() < 0.5 else data.decode("utf-8", "replace")
    content = text.encode(dice.choice(("utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32")), "replace")
    pack = dice.choice((bytes, gzip.compress, lzma.compress, bz2.compress, zstandard.compress))
    content = pack(content)
    return blind(content, dice) if dice.random() < 0.5 else content


def event_file(data: bytes, dice: random.Random) -> bytes:
    """TensorBoard's records, one of them changed, with checksums that fit."""
    from trackers.formats.tensorboard_event import TFRecordFramer

    records, at = [], 0
    while at + 16 <= len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        records.append(data[at + 12 : at + 12 + size])
        at += size + 16
    framer = TFRecordFramer()
    place = dice.randrange(len(records))
    records[place] = message(records[place], dice)
    if dice.random() < 0.2:
        dice.shuffle(records)
    return b"".join(framer.frame(record) for record in records)


def message(content: bytes, dice: random.Random) -> bytes:
    """A protocol buffer: of its texts and numbers some are others, or its bytes are damaged."""
    if dice.random() < 0.4:
        return blind(content, dice)
    found = list(re.finditer(rb"[ -~]{3,200}", content))
    if not found:
        return flip(content, dice)
    match = dice.choice(found)
    text = match[0]
    if text[:1] in b'{["' or b'{"' in text or dice.random() < 0.5:  # same length: the frame around it stays whole
        odd = dice.choice((b"[" * len(text), b"9" * len(text), b'"' * len(text), b"\xff" * len(text), b"0" * len(text)))
        return content[: match.start()] + odd[: len(text)] + content[match.end() :]
    return content[: match.start()] + fields(text, dice)[: len(text)].ljust(len(text), b"}") + content[match.end() :]


def wandb_records(data: bytes, dice: random.Random) -> bytes:
    """W&B's records, one of them changed in its fields, with checksums that fit."""
    from wandb.proto import wandb_internal_pb2 as protocol

    payloads = list(wandb_payloads(data))
    place = dice.randrange(len(payloads))
    record = protocol.Record.FromString(payloads[place])
    texts = list(_items(record))
    if texts and dice.random() < 0.8:
        item = dice.choice(texts)
        what = dice.randrange(4)
        if what == 0:
            item.value_json = (
                dumped(dice.choice(ODD)).decode("utf-8", "surrogatepass").encode("utf-8", "replace").decode()
            )
        elif what == 1:
            item.value_json = dice.choice(
                ("[" * 2000, "{", "NaN", "", '"\\ud800"', '{"a":' * 800 + "1" + "}" * 800, "9" * 5000)
            )
        elif what == 2 and hasattr(item, "nested_key"):
            item.nested_key.extend(["a"] * dice.choice((1, 3, 300, 900)))
        else:
            item.key = dice.choice(("_step", "_timestamp", "global_step", "", "a.b", "_wandb"))
        payloads[place] = record.SerializeToString()
    else:
        payloads[place] = message(payloads[place], dice)
    if dice.random() < 0.2:
        dice.shuffle(payloads)
    return wandb_file(payloads)


def parquet(data: bytes, dice: random.Random) -> bytes:
    """A table with one value changed, a column gone, of another type or called otherwise, or its rows in disorder."""
    import pyarrow
    from pyarrow import parquet as files

    table = files.read_table(pyarrow.BufferReader(data))
    at = dice.randrange(table.num_columns)
    name, column = table.column_names[at], table.column(at)
    what = dice.randrange(10)
    if what < 6:
        values = column.to_pylist()
        place = dice.randrange(len(values))
        for value in dice.sample(ODD, 12):  # what fits the column's type
            with contextlib.suppress(pyarrow.ArrowException, TypeError, ValueError, OverflowError):
                changed = [*values[:place], value, *values[place + 1 :]]
                table = table.set_column(at, name, pyarrow.array(changed, column.type))
                break
    elif what == 6:
        table = table.remove_column(at)
    elif what == 7:
        table = table.set_column(at, name, pyarrow.array([str(value) for value in column.to_pylist()]))
    elif what == 8:
        table = table.rename_columns([str(dice.choice(TEXTS)) if one == name else one for one in table.column_names])
    else:
        order = [dice.randrange(table.num_rows) for _ in range(table.num_rows * dice.choice((1, 5)))]
        table = table.take(order)
    written = pyarrow.BufferOutputStream()
    files.write_table(table, written, compression=dice.choice(("snappy", "none", "zstd")))
    return written.getvalue().to_pybytes()


def _items(record: Any) -> list[Any]:
    found: list[Any] = []
    for part in (record.history.item, record.stats.item, record.summary.update, record.config.update,
                 record.run.config.update):  # fmt: skip
        found.extend(part)
    return found


def wandb_payloads(data: bytes) -> list[bytes]:
    found, at, parts = [], 7, b""
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            found.append(parts)
            parts = b""
    return found


def wandb_file(payloads: list[bytes]) -> bytes:
    """A ``.wandb`` file with these records."""
    out = bytearray(struct.pack("<4sHB", b":W&B", 0xBEE1, 0))
    for payload in payloads:
        first = True
        while True:
            room = 32768 - len(out) % 32768
            if room < 7:
                out += b"\0" * room
                continue
            part, payload = payload[: room - 7], payload[room - 7 :]
            kind = (1 if not payload else 2) if first else (4 if not payload else 3)
            out += struct.pack("<IHB", zlib.crc32(part, zlib.crc32(bytes([kind]))), len(part), kind) + part
            first = False
            if not payload:
                break
    return bytes(out)


def packed(data: bytes, dice: random.Random) -> bytes:
    """A packed journal: damaged before it was packed, with a table that says something else, or blindly."""
    from trackers.support.seekable_zstd import need_zstd

    if dice.random() < 0.2:
        return blind(data, dice)
    zstd = need_zstd()
    content = b"".join(zstd.decompress(frame) for frame in _frames(data))
    if dice.random() < 0.6:
        content = dice.choice((blind, json_in_lines, fields))(content, dice)
    count = dice.choice((1, 1, 2, 5))
    size = max(1, -(-len(content) // count))
    frames, table = [], []
    for start in range(0, len(content), size):
        frame = zstd.compress(content[start : start + size], 3)
        frames.append(blind(frame, dice) if dice.random() < 0.1 else frame)
        table.append([len(frames[-1]), len(content[start : start + size])])
    odd = (0, 1, 0xFFFFFFFF, 0x7FFFFFFF, 1 << 24, 1 << 30, dice.randrange(4096))
    number = len(table)
    if table and dice.random() < 0.3:
        dice.choice(table)[dice.randrange(2)] = dice.choice(odd)
    if dice.random() < 0.1:
        number = dice.choice(odd)
    entries = b"".join(struct.pack("<II", *entry) for entry in table)
    head = struct.pack("<II", 0x184D2A5E, len(entries) + 9 if dice.random() < 0.9 else dice.choice(odd))
    return b"".join(frames) + head + entries + struct.pack("<IBI", number, 0, 0x8F92EAB1)


def _frames(data: bytes) -> list[bytes]:
    """The frames of a packed journal, by the table at its end."""
    count = struct.unpack("<IBI", data[-9:])[0]
    found, at = [], 0
    for size, _ in struct.iter_unpack("<II", data[-9 - 8 * count : -9]):
        found.append(data[at : at + size])
        at += size
    return found


def sqlite(path: Path, dice: random.Random) -> None:
    """A database with a cell, or its tables themselves, changed by SQL; or its bytes, blindly."""
    if dice.random() < 0.3:
        path.write_bytes(blind(path.read_bytes(), dice))
        return
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode=DELETE")
        database.execute("PRAGMA synchronous=OFF")
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        full = [t for t in tables if database.execute(f'SELECT 1 FROM "{t}" LIMIT 1').fetchone()]
        table = dice.choice(full or tables)
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        column = dice.choice(columns)
        what = dice.randrange(20)
        if what == 0:
            database.execute(f'DROP TABLE "{table}"')
        elif what == 1:
            database.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "other"')
        elif what == 2:
            database.execute(f'ALTER TABLE "{table}" RENAME TO "hidden"')
            endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)"
            database.execute(f'CREATE VIEW "{table}" AS {endless} SELECT hidden.* FROM hidden, r')
        elif what == 3:
            database.execute(f'ALTER TABLE "{table}" RENAME TO "hidden"')
            several = ", ".join(
                f'zeroblob(400000000) AS "{name}"' if name == column else f'"{name}"' for name in columns
            )
            database.execute(f'CREATE VIEW "{table}" AS SELECT {several} FROM hidden')
        else:
            rows = [row[0] for row in database.execute(f'SELECT rowid FROM "{table}"')]
            value = odd(dice)
            old = (
                database.execute(f'SELECT "{column}" FROM "{table}" WHERE rowid = ?', (rows[0],)).fetchone()
                if rows
                else None
            )
            if old and isinstance(old[0], str) and old[0][:1] in "{[" and dice.random() < 0.8:
                try:
                    value = json_file(old[0].encode(), dice).decode("utf-8", "replace")
                except (RecursionError, ValueError):  # nested too deeply for Python to write, or in itself
                    value = old[0][: len(old[0]) // 2]
            elif isinstance(value, (list, dict)) or (isinstance(value, int) and abs(value) >= 2**63):
                value = json.dumps(value)
            elif isinstance(value, str):
                value = (
                    value.encode("utf-8", "surrogatepass")
                    if dice.random() < 0.5
                    else value.encode("utf-8", "replace").decode()
                )
            where = (dice.choice(rows),) if rows else (1,)
            database.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (value, *where))
    except sqlite3.Error:
        pass
    finally:
        database.close()
