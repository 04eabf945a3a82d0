"""What a stranger leaves in a directory: its Kconfig and ``.config``, YAML, and files that unpack to far more."""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import io
import itertools
import os
import random
import re
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz import mutate
from trackers.errors import TrackersError
from trackers.formats.yaml_text import yaml_text

SECRET = "topsecret-of-somebody"
"""What lies outside of the directory, and in the environment."""
_turn = itertools.count()


def make(place: Path) -> None:
    """Write the undamaged files of the three targets, each in a folder of its own."""
    for folder, files in (("kconfig", KCONFIG_FILES), ("yaml", YAML_FILES)):
        for name, text in files.items():
            path = place / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (place / "bombs").mkdir()
    for name, content in _bomb_files().items():
        (place / "bombs" / name).write_bytes(content)


KCONFIG_FILES = {
    "Kconfig": 'mainmenu "Theirs"\n\nconfig FAST\n\tbool "Fast"\n\tdefault y\n\thelp\n\t  Text.\n\n'
    'config WIDTH\n\tint "Width"\n\trange 1 512\n\tdefault 64 if FAST\n\tdefault 8\n\n'
    'choice KIND\n\tprompt "Kind"\n\tdefault KIND_A\nconfig KIND_A\n\tbool "A"\nconfig KIND_B\n\tbool "B"\n'
    "\tdepends on FAST && !SLOW\nendchoice\n\nsource \"parts/Kconfig.data\"\nrsource 'parts/*.more'\n\n"
    'if FAST || KIND_B\nsource "$(TRACKERS_KCONFIG)"\nendif\n\nconfig JSON_DIR\n\tdefault "out"\n',
    "parts/Kconfig.data": 'menu "Data"\n\tvisible if FAST\nconfig SLOW\n\ttristate "Slow"\n\timply WIDE\nendmenu\n'
    'config WIDE\n\thex "Wide"\n\tdefault 0x10\ncomment "and so on"\n\tdepends on WIDTH > 3 && KIND_A != n\n',
    "parts/a.more": 'config FILE\n\tstring "File"\n\tdefault "data.bin"\n\tselect SLOW if WIDTH = 8\n',
    ".config": '# by hand\nCONFIG_FAST=y\nCONFIG_WIDTH=32\nCONFIG_FILE="a \\"b\\""\n# CONFIG_SLOW is not set\n'
    'CONFIG_TRACKER="json,csv"\nCONFIG_TRACKER_PROJECT="digits"\nCONFIG_TRACKER_LOG_INTERVAL=10\n'
    'CONFIG_CSV_DIR="out"\nCONFIG_TRACKER_RELAY=y\n',
    "defconfigs/mine": '# a short one\nCONFIG_TRACKER="json"\nCONFIG_JSON_DIR="out"\n',
    "kconfigfunctions.py": "import pathlib\npathlib.Path('ran').touch()\nfunctions = {'pwn': (lambda *a: 'y', 0, 9)}\n",
}
KCONFIG_LINES = [
    "source {q}{p}{q}", "rsource {q}{p}{q}", "osource {q}{p}{q}", "orsource {p}", 'source "$(TRACKERS_KCONFIG)"',
    "config X{n}", "menuconfig X{n}", 'config {s}\n\tdefault "{v}"', "config {s}\n\tstring {q}{v}{q}", "\tbool",
    "\tstring", "\tint", "\thex", "\ttristate", '\tprompt "{v}" if {e}', "\tdefault {e}", '\tdefault "{v}"',
    "\tdefault {q}{v}{q}", "\tdepends on {e}", "\tselect X{n} if {e}", "\timply {s}", "\trange {n} {v}", "\tmodules",
    "\tvisible if {e}", '\toption env="{x}"', "\toption allnoconfig_y", "\toption modules", "\tdef_bool $({f},{v})",
    "\thelp\n\t  {v}", "if {e}", "endif", 'menu "{v}"', "endmenu", "choice X{n}", "endchoice", 'comment "{v}"',
    'mainmenu "{v}"', "m{n} = $(m{m})$({f},{v})", "m{n} := $({f},{v})", "m{n} += $(m{m})", "$({f},{v})", "$(m{n})",
    "$($(m{n}),{v})", "\tdefault $(m{n})", "\\", "\t\\", "{v}", '"', "$(", "\t---help---", 'CONFIG_{s}="{v}"',
    "CONFIG_{s}={v}", "# CONFIG_{s} is not set", "CONFIG_X{n}={v}", 'CONFIG_{s}="$({f},{v})"',
]  # fmt: skip
"""Lines of Kconfig and of its values; in braces what :func:`kconfig_lines` fills in."""
KCONFIG_WORDS: dict[str, list[str]] = {
    "p": ["pipe", "/dev/zero", "zero", "../secret", "link", "up/secret", "../sec*", "/*/*", "parts/*", "*", "Kconfig",
          "parts/Kconfig.data", "parts/../../secret", "/proc/self/environ", "$MY_SECRET", "$(MY_SECRET)", "a" * 5000,
          "${MY_SECRET}", "$(shell,echo ../secret)", "", ".", "~/x", "[", "**/**/**", ".config"],
    "q": ['"', "'", ""],
    "s": ["TRACKER", "TRACKER_MODE", "TRACKER_MODE_OFFLINE", "MLFLOW_TRACKING_URI", "TRACKIO_SERVER_URL", "JSON_DIR",
          "TRACKER_PYTHON", "TRACKER_ALERT_TO", "TRACKER_SHARE", "TRACKER_DIR", "TRACKER_LOG_INTERVAL", "WANDB_DIR",
          "CSV_DIR", "TRACKER_RELAY", "TRACKER_NODES", "MODULES"],
    "v": ["$(MY_SECRET)", "$MY_SECRET", "${MY_SECRET}", "http://127.0.0.1:1/x", "../out", "/tmp/out", "out", "json",
          "0x", "9" * 400, "", "\\", '\\"', "$(shell,touch ran)", "touch ran", "cat ../secret", "a,b", "\x1b]0;x\x07",
          "$(m1)", "\u202e", "-1", "wandb,mlflow", "x" * 3000, "n", "y"],
    "e": ["y", "n", "m", "FAST", "!FAST", "FAST && X1", "X1 || X2", "(X1", "X1)", "((((X2))))", "WIDTH > 3", "X1 = X2",
          'FILE = "{v}"', "$(f)", "$(shell,touch ran)", "!" * 900 + "y", "(" * 900 + "y" + ")" * 900, "&& y",
          "X1 != $(MY_SECRET)"],
    "f": ["shell", "info", "warning-if", "error-if", "filename", "lineno", "pwn", "m1", "m2", "$(m1)", "success", ""],
    "x": ["MY_SECRET", "HOME", "TRACKERS_KCONFIG", ""],
    "n": ["1", "2", "3"],
    "m": ["1", "2", "3"],
}  # fmt: skip
_BLANK = re.compile(r"\{([a-z])\}")


def kconfig_lines(data: bytes, dice: random.Random) -> bytes:
    """A file of Kconfig or of its values with one to six lines of a stranger's in it, sometimes many times."""
    lines = data.decode("utf-8", "replace").split("\n")
    for _ in range(dice.choice((1, 1, 2, 3, 6))):
        line = dice.choice(KCONFIG_LINES)
        while match := _BLANK.search(line):
            line = line[: match.start()] + dice.choice(KCONFIG_WORDS[match[1]]) + line[match.end() :]
        lines[dice.randrange(len(lines)) : 0] = [line] * dice.choice((1, 1, 1, 1, 1, 1, 1, 2, 40, 300))
    return "\n".join(lines).encode("utf-8", "replace")


def read_kconfig(place: Path) -> None:
    """Begin a run where such files lie; one of ten times also the commands that write: nothing is run or told."""
    from trackers.configuration.menu import Workspace
    from trackers.configuration.options import resolve

    outside = place.parent / "secret"
    if not outside.exists():
        outside.write_text(SECRET)
        os.environ["XDG_CONFIG_HOME"] = str(place.parent / "nobody")
        os.environ["MY_SECRET"] = SECRET
    os.chdir(place)
    Path("saved").unlink(missing_ok=True)  # of the undamaged files, which are read again
    with contextlib.suppress(FileExistsError):
        os.mkfifo("pipe")
        os.symlink("/dev/zero", "zero")
        os.symlink(outside, "link")
        os.symlink("..", "up")
    environ = {"MY_SECRET": SECRET}
    steps: list[Callable[[], object]] = [lambda: resolve(environ=environ, cwd=place)]
    if next(_turn) % 10 == 0:
        steps += [
            lambda: resolve(defconfig="mine", environ=environ, cwd=place),
            lambda: Workspace(environ, place).olddefconfig(),
            lambda: Workspace(environ, place).savedefconfig(place / "saved"),
            lambda: Workspace(environ, place).defconfig("mine"),
        ]
    refused: TrackersError | None = None
    for step in steps:
        try:
            told = str(step())
        except TrackersError as error:
            told, refused = str(error), error
        assert SECRET not in told
        assert not os.path.lexists("ran")
    for made in (".config", "saved"):
        assert not os.path.isfile(made) or SECRET.encode() not in Path(made).read_bytes()
    if refused is not None:
        raise refused


YAML_FILES = {
    "sweep.yaml": """\
program: train.py
method: random
run_cap: 4
metric: {name: loss, goal: minimize}
parameters:
  lr: {min: 0.001, max: 0.1, distribution: log_uniform_values}
  width:
    values: &w [8, 16]
  deep:
    parameters:
      drop: {value: 0.5}
      size:
        values: *w
command: [python, '${program}', '${args}']
""",
    "features.yaml": """\
tensor_inspect:
  enabled: true
  features: &f
    stats:
      enabled: true
      layers:
        layer_types: [qkv]
      transformer_engine:
        LogTensorStats:
          enabled: true
          stats: [max, min, mean]
          tensors: [activation, gradient]
          freq: 2
          start_step: 0
""",
    "config.yaml": """\
wandb_version: 1
lr: {value: 0.1, desc: null}
model: &m
  width: 3
  name: é
  <<: {a: 1}
other:
  <<: *m
  when: 2026-01-02
  bytes: !!binary aGVsbG8=
  set: !!set {a, b}
  text: |
    lines
    of it
""",
}


def yaml_aliases(data: bytes, dice: random.Random) -> bytes:
    """YAML with anchors that stand for one another: few or many levels, lists, mappings, merges, loops."""
    wide, levels = dice.choice((1, 2, 9, 60)), dice.choice((1, 3, 9, 40))
    lines = ["a0: &a0 [x, y]" if dice.random() < 0.6 else "a0: &a0 {x: 1, y: 2}"]
    for level in range(1, levels):
        named = f"a{level if dice.random() < 0.9 else 0}"
        inner = [f"*a{level - 1 if dice.random() < 0.9 else dice.randrange(levels)}" for _ in range(wide)]
        form = dice.choice(("[{}]", "[{}]", "{{<<: [{}]}}", "{{k: [{}]}}", "!!set [{}]", "!!omap [{}]"))
        lines.append(f"a{level}: &{named} " + form.format(", ".join(inner)))
    text = data.decode("utf-8", "replace").split("\n")
    text[dice.randrange(len(text)) : 0] = lines
    last = f"*a{levels - 1}"
    changed = re.sub(r"\*\w+", last, "\n".join(text)) if dice.random() < 0.5 else "\n".join([*text, f"z: {last}"])
    return changed.encode("utf-8", "replace")


def yaml_tags(data: bytes, dice: random.Random) -> bytes:
    """YAML with tags and scalars that mean something to a loader."""
    lines = data.decode("utf-8", "replace").split("\n")
    at = dice.randrange(len(lines))
    name, separator, _ = lines[at].partition(":")
    piece = dice.choice(YAML_PIECES)
    lines[at] = dice.choice((f"{name}{separator} {piece}", piece, f"{lines[at]} {piece}", f"  {piece}: {piece}"))
    return "\n".join(lines).encode("utf-8", "replace")


YAML_PIECES = (
    "!!python/object/apply:os.system ['touch ran']", "!!python/name:os.system", "!!binary ////", "!!timestamp x",
    "!!int 0x", "!!float 1:2:3", "1e400", "0b" + "1" * 5000, "9" * 5000, "190:20:30." + "9" * 300, "2026-99-99",
    "!<tag:yaml.org,2002:str> x", "? {a: b}", "&x [*x]", "&x {a: *x}", "[" * 500, "{a: " * 300, "- " * 300, "? " * 300,
    "%YAML 1.9\n---", "--- a\n--- b", "\t", "\x00", "\ufeff", "'", '"\\x', "|9", ">-\n  x", ".inf", "~", "y", "=",
    "<<: 3", "{<<: [1, {a: b}]}", "!!map [1]", "!!seq {a: b}", "!!pairs [{a: 1, b: 2}]", "*nobody", "&a &b c",
)  # fmt: skip


def yaml_values(data: bytes, dice: random.Random) -> bytes:
    """YAML with one to four of its values changed: it can be read, and means something else or nothing."""
    import yaml  # type: ignore[import-untyped,unused-ignore]

    value = yaml.load(data, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    for _ in range(dice.choice((1, 1, 2, 4))):
        value = mutate.json_value(value, dice)
    return yaml_text(value).encode("utf-8", "replace")


def read_yaml(place: Path) -> None:
    """A configuration and one of tensor inspection, each made of every file."""
    from trackers import records
    from trackers.inspection.config import TensorInspectConfig
    from trackers.inspection.features import sections
    from trackers.training.wandb_arguments import read_config

    os.chdir(place)
    for path in sorted(place.glob("*.yaml")):
        refused = []
        for read in (
            lambda path: list(records.flatten(read_config(path))),
            lambda path: sections(TensorInspectConfig.from_file(path).read_features()),
        ):
            try:
                read(path)
            except TrackersError as error:
                assert len(str(error).splitlines()) == 1, error  # noqa: PT017
                refused.append(error)
        assert not os.path.lexists("ran")
        if len(refused) == 2:
            raise refused[0]


def _bomb_files() -> dict[str, bytes]:
    import numpy
    from PIL import Image

    from trackers.provenance import manifest
    from trackers.support.seekable_zstd import need_zstd

    files: dict[str, bytes] = {}
    pixels: Any = numpy.arange(8 * 6 * 3, dtype=numpy.uint8).reshape(6, 8, 3)
    for name, form in (("a.png", "PNG"), ("a.jpg", "JPEG"), ("a.gif", "GIF"), ("a.webp", "WEBP"), ("a.bmp", "BMP"),
                       ("a.tiff", "TIFF")):  # fmt: skip
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, format=form)
        files[name] = out.getvalue()
    for name, array in (("picture.npy", pixels), ("video.npy", numpy.zeros((2, 4, 4, 3), numpy.uint8)),
                        ("sound.npy", numpy.linspace(-1, 1, 40))):  # fmt: skip
        out = io.BytesIO()
        numpy.save(out, array)
        files[name] = out.getvalue()
    files["backup.tar.gz"] = _backup({"results/a.json": b'{"a": 1}', "results/b/c.csv": b"step\n1\n"})
    files["code-1.zip"] = manifest.pack({_digest(text): text for text in SOURCES})
    files["rows.csv.gz"] = gzip.compress(b"step,loss\n1,0.5\n2,0.25\n", 1)
    files["rows.csv.zst"] = need_zstd().compress(b"step,loss\n1,0.5\n2,0.25\n")
    return files


SOURCES = (b"print(1)\n", b"x = 2\n")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _backup(files: dict[str, bytes], heads: dict[str, str] | None = None, size: int | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            head = tarfile.TarInfo(name)
            head.size, head.pax_headers = len(content), heads or {}
            tar.addfile(head, io.BytesIO(content))
            if size is not None:
                head.size = size
                out.write(head.tobuf())
    return out.getvalue()


@functools.cache
def _much(pack: Callable[[bytes], bytes], size: int) -> bytes:
    return pack(bytes(size))


MUCH = 3_000_000
SIZES = (0, 1, 255, 4000, 13_000, 30_000, 65_535, 2**31 - 1)


def claims(data: bytes, dice: random.Random) -> bytes:
    """A picture, an array, an archive or a packed text that claims to be far more than it is, or unpacks to it."""
    change = next((change for head, change in _BY_HEAD if data.startswith(head)), mutate.blind)
    return change(data, dice)


def _png(data: bytes, dice: random.Random) -> bytes:
    sides = struct.pack(">II", dice.choice(SIZES), dice.choice(SIZES))
    chunks = [(b"IHDR", sides + bytes([dice.choice((1, 8, 16)), dice.choice((0, 2, 3, 6)), 0, 0, dice.choice((0, 1))]))]
    if dice.random() < 0.3:
        kind = dice.choice((b"iCCP", b"zTXt", b"iTXt", b"acTL", b"tRNS"))
        chunks.append((kind, b"a\0\0" + _much(zlib.compress, MUCH)))
    chunks += [(b"IDAT", _much(zlib.compress, dice.choice((1000, MUCH)))), (b"IEND", b"")]
    return data[:8] + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _short_sides(dice: random.Random, order: str) -> bytes:
    return struct.pack(f"{order}HH", *(dice.choice(SIZES) & 0xFFFF for _ in range(2)))


def _gif(data: bytes, dice: random.Random) -> bytes:
    data = data[:6] + _short_sides(dice, "<") + data[10:]
    at = data.find(b",", 13)
    if dice.random() < 0.7:
        data = data[: at + 5] + _short_sides(dice, "<") + data[at + 9 :]
    return data[:-1] + data[at:-1] * dice.choice((1, 1, 30)) + b";"


def _bmp(data: bytes, dice: random.Random) -> bytes:
    return data[:18] + struct.pack("<ii", dice.choice(SIZES), dice.choice((1, -1)) * dice.choice(SIZES)) + data[26:]


def _jpeg(data: bytes, dice: random.Random) -> bytes:
    at = next(re.finditer(rb"\xff[\xc0\xc2]..\x08", data, re.S)).end()
    return data[:at] + _short_sides(dice, ">") + data[at + 4 :]


def _array(data: bytes, dice: random.Random) -> bytes:
    one, other = dice.choice(SIZES), dice.choice(SIZES)
    shape = dice.choice((f"({one}, {other}, 3)", f"({one},)", "()", f"({other}, {one})", f"(0, {2**62})", f"({2**70},)",
                         "(-1,)", "(" * 300, f"({one}, {other}, 2, 2)"))  # fmt: skip
    kind = dice.choice(("|u1", "<f8", "<i8", "|O", "|b1", "<c16", "<M8[s]", "<U999999", "|V0", "|S3", "<f2"))
    head = f"{{'descr': '{kind}', 'fortran_order': {dice.random() < 0.2}, 'shape': {shape}, }}".ljust(117) + "\n"
    return data[:8] + struct.pack("<H", len(head)) + head.encode() + data[128:]


def _zip(data: bytes, dice: random.Random) -> bytes:
    return mutate.length(data, dice) if dice.random() < 0.5 else _zip_of_much(dice.choice((1000, MUCH)))


def _gzip(data: bytes, dice: random.Random) -> bytes:
    if b"results/" not in zlib.decompress(data, 31)[:512]:
        return _packed(gzip.compress, dice)
    heads = dice.choice(({"mtime": "nan"}, {"mtime": "inf"}, {"size": "9" * 30}, {"size": "-1"}, {"uid": "x"}, {},
                         {"GNU.sparse.size": "9" * 15}, {"path": "results/a\0b"}, {"path": "../../x"},
                         {"path": "x/" * 400 + "y"}))  # fmt: skip
    files = {"results/new.json": bytes(dice.choice((0, 10, 10, 10, MUCH))), "results/a.json": b"1"}
    return _backup(files, heads, dice.choice((None, 2**40, 2**62, 0)))


def _zstd(data: bytes, dice: random.Random) -> bytes:
    from trackers.support.seekable_zstd import need_zstd

    return _packed(need_zstd().compress, dice)


def _packed(pack: Callable[[bytes], bytes], dice: random.Random) -> bytes:
    """A few lines and then one again and again, up to 300 kB; now and then 120 MB. Small ones come most, as quick."""
    some = dice.choices(
        (b"step,loss\n", b"1,0.5\n", b"2,1e400\n", b'"\n', b",,,\n", b"\n", b"x" * 99), k=dice.randrange(9)
    )
    if dice.random() < 1 / 31:
        return pack(b"".join(some)) + _much(pack, MUCH // 10) * 400
    again = dice.choice((b"\0", b"\0", b"a", b",", b"\n", b"1,2\n", b'"'))
    return pack(b"".join(some) + again * int(10 ** dice.uniform(0, 5.5) / len(again)))


_BY_HEAD: tuple[tuple[bytes, mutate.Mutation], ...] = (
    (b"\x89PNG", _png), (b"GIF", _gif), (b"BM", _bmp), (b"\xff\xd8", _jpeg), (b"\x93NUMPY", _array), (b"PK", _zip),
    (b"\x1f\x8b", _gzip), (b"\x28\xb5\x2f\xfd", _zstd),
)  # fmt: skip


@functools.cache
def _zip_of_much(size: int) -> bytes:
    from trackers.provenance import manifest

    return manifest.pack({_digest(SOURCES[0]): bytes(size)})


def read_bombs(place: Path) -> None:
    """Each file in every way in which a delivery, a command or a page takes one of its kind."""
    from trackers.retention.archive import put_back
    from trackers.support.interruption import suppress

    files = {path.name for path in place.iterdir()}
    for path in map(place.joinpath, sorted(files)):
        readers: tuple[Callable[[Path], Any], ...]
        if path.suffix in (".gz", ".zst") and "backup" not in path.name:
            readers = (_rows,)
        elif path.suffix == ".gz":
            readers = (lambda path: put_back(path, place / "back", yes=True),)
        elif path.suffix == ".zip":
            readers = (_sources,)
        else:
            readers = _of_media()
        for read in readers:
            with suppress(TrackersError):
                read(path)
    assert {found.name for found in place.iterdir()} <= files | {"back"}


def _rows(path: Path) -> None:
    from tests.fuzz.targets import everything

    everything(f"csv:{path}")


def _sources(path: Path) -> None:
    from trackers.journal.run_directory import RunDirectory
    from trackers.provenance import manifest

    archive = manifest.Archive(RunDirectory(path.parent), manifest.Manifest(run="seedrun1"))
    for text in SOURCES:
        file = manifest.SourceFile(path="a.py", origin="imported", digest=_digest(text), bytes=len(text), kept=True)
        assert archive.read(file) == text


@functools.cache
def _of_media() -> tuple[Callable[[Path], Any], ...]:
    from trackers.analysis import report_media
    from trackers.backends.shared import media_files
    from trackers.records import MediaFile
    from trackers.tracker import RunInfo
    from trackers.ui import media

    def item(path: Path) -> tuple[Any, MediaFile]:
        info = RunInfo(id="seedrun1", name="a", project="digits", directory=str(path.parent))
        return info, MediaFile(file=path.name, format=path.suffix[1:])

    arrays = (
        lambda path: media_files.wav(*item(path)),
        lambda path: media_files.gif(*item(path)),
        lambda path: media.shown_file(path.name, "npy", "image", path.parent, "a"),
        lambda path: media.shown_file(path.name, "npy", "video", path.parent, "a"),
    )
    return (
        lambda path: media_files.image(*item(path)),
        lambda path: media_files.png(*item(path)),
        lambda path: report_media._as_markdown(item(path)[1], path.parent),
        lambda path: [read(path) for read in arrays if path.suffix == ".npy"],
    )
