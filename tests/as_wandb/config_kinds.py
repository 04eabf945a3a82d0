"""Kinds of configuration values, as W&B's own client keeps them and as this package does under its name.

``python -m tests.as_wandb.config_kinds`` prints the table of kinds that differ, which docs/wandb-scripts.md shows.
``python config_kinds.py real`` and ``… ours`` make the runs, and print what the script reads back, a JSON line a kind.
"""

from __future__ import annotations

import collections
import configparser
import dataclasses
import enum
import functools
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any, NamedTuple

Color = enum.Enum("Color", {"RED": 1, "BLUE": "b"})
Level = enum.IntEnum("Level", "ONE")
Bits = enum.Flag("Bits", "A B")
Word = enum.Enum("Word", {"X": "xx"}, type=str)
Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass(slots=True)
class Slots:
    """A dataclass without a mapping of its attributes; one alone: W&B has several in any order."""

    a: int = 1


@dataclasses.dataclass
class Args:
    """A dataclass that computes an attribute."""

    batch: int = 8
    inner: Any = dataclasses.field(default_factory=Slots)

    def __post_init__(self) -> None:
        self.half = self.batch // 2


class Plain:
    """An object with attributes."""

    def __init__(self) -> None:
        self.a = 1


class Shown(Plain):
    """An object with a text."""

    def __str__(self) -> str:
        return "shown"


class Mute:
    """An object that can't be shown."""

    def __repr__(self) -> str:
        raise ValueError("no")


def around(value: Any) -> Any:
    """A container that contains itself."""
    if isinstance(value, dict):
        value.update(one=value, other=value)
    else:
        value += [value, value]
    return value


def deep(levels: int) -> Any:
    """Nested mappings."""
    return functools.reduce(lambda inside, _: {"n": inside}, range(levels), 5)


INF, NAN = float("inf"), float("nan")
SAME = """
{"a": {"b": [1, (2, 3)]}}; collections.OrderedDict(b=1, a=2)
collections.defaultdict(list, a=[1]); collections.Counter("aab"); []; {}; (); ""; None; True; -0.0; 5e-324
2**70; "a\\0b"; "\\U0001f600\\u2028\\x85\\x0c"; "a\\r\\nb"; "x" * 100_000; {"k" * 2000: 1}
types.SimpleNamespace(a=1, b=types.SimpleNamespace(c=2)); slice(1, 10, 2); slice(None); [slice(1)]
{"s": slice(None, 1)}; functools.partial(int, base=2); json.dumps; len; Plain; Plain.__init__; int; Color; b"ab"
bytearray(b"x"); memoryview(b"x"); Slots(); Slots(Slots([Slots(3)])); [Slots()]; Args(); Args; PM()
[PM()]; {"m": PM()}; Point(1, "b"); [Point(1, "b")]; pathlib.Path("/a/b"); pathlib.PureWindowsPath("C:\\\\x")
[pathlib.Path("a/../b")]; uuid.UUID(int=5); ipaddress.ip_address("1.2.3.4"); np.float32(0.1); np.float16(0.1)
np.int8(-3); np.uint64(2**64 - 1); np.bool_(True); np.str_("s"); np.arange(3); np.ones((2, 2))
np.array(["a", "b"]); np.array([{"a": 1}, None], dtype=object); np.array([]); np.ma.array([1, 2], mask=[0, 1])
np.dtype("float32"); np.datetime64("2020-01-02"); np.timedelta64(3, "s"); np.float32; array.array("i", [1, 2])
[np.float32(0.1), np.arange(2)]; torch.float32; torch.device("cpu"); torch.tensor(0.5); torch.tensor(True)
torch.arange(3); torch.ones(2, 2); torch.Size([1, 2]); torch.tensor(0.5, dtype=torch.bfloat16); torch.tensor([])
torch.strided; torch.nn.Linear(1, 1); {"c": torch.tensor(2)}; datetime.datetime(2020, 1, 2, 3, 4, 5, 6)
datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone.utc); datetime.date(2020, 1, 2); datetime.time(1, 2)
datetime.timedelta(1, 2); datetime.timezone.utc; pd.Timestamp("2020-01-02"); pd.Timedelta("1s"); pd.NA; pd.NaT
decimal.Decimal("0.10"); fractions.Fraction(1, 3); {"c": decimal.Decimal("1.5")}; {3, 1, 2}; [{1, 2}]
collections.deque([1]); range(3); collections.UserList([1, 2]); Shown(); re.compile("a+")
pd.DataFrame({"a": [1]}); pd.Interval(0, 1); {1: "a", 2: {3: "b"}}; {(1, 2): "a"}; {None: 1}; {Color.RED: 1}
{True: 1, False: 2}; {0.5: 1}; {b"a": 1}; {pathlib.Path("/k"): 1}; {np.int64(4): 1}; {Word.X: 1}; {Level.ONE: 1}
{datetime.date(2020, 1, 2): 1}; {int: 1}; {"": 1}; {"a.b": 1, "a": {"b": 2}}; {"a/b": 1}; {"_x": 1}
[{0: "cat"}, ({1: 2},)]; deep(30)
"""
"""Kinds that are kept alike, as Python writes them."""

DIFFERENT = {
    "Nested settings stay nested; W&B's client has Python's text": """
argparse.Namespace(a=1, b=[2]); argparse.Namespace(a=argparse.Namespace(b=1)); {"n": argparse.Namespace(a=1)}
collections.ChainMap({"a": 1}, {"a": 2, "b": {"c": 3}}); collections.UserDict(a=1, b=collections.UserDict(c=2))
OC.create({"a": 1, "b": {"c": [1, 2]}, "i": "${a}"}); OC.create([1, {"a": 2}, "${0}"]); [OC.create({"a": 1})]
OC.create({}); OC.create({"a": "???", "b": {"h": "${oc.env:NOT_THERE}"}}); OC.create({"e": Color.RED})
""",
    "A member of an `Enum` is its value; W&B's client has its name": """
Color.RED; Color.BLUE; Level.ONE; Bits.A | Bits.B; Word.X; [Color.BLUE, Level.ONE]; {"e": Color.RED}
""",
    "NaN and infinities are kept by name; W&B's client has null for NaN": """
NAN; INF; -INF; np.float32("nan"); [1, NAN]; np.array([0.5, NAN])
""",
    "Arrays of up to 1,000 values are lists, of no dimension the value; W&B's client has text for one and above 32": """
np.array(3); np.array(0.5); np.array([True]); np.arange(33)
np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")]); np.bytes_(b"q"); torch.tensor([2.0])
torch.tensor([1.0], requires_grad=True); torch.nn.Parameter(torch.ones(1)); pd.Series([1, 2]); pd.Index([1, 2])
""",
    "Taken here; W&B's client refuses it, and a script that gives it ends": """
...; types.MappingProxyType({"a": 1}); collections.UserString("us"); torch.tensor([0.5], dtype=torch.bfloat16)
b"\\xff\\xfe"; torch.eye(2).to_sparse(); around({"a": 1}); around([1]); {frozenset({1}): 1}; {"a": 1}.keys()
{"a": 1}.items(); Mute(); ValueError("bad")
""",
    "What a script has still to read is left to it; W&B's client reads it to the end": """
(i for i in range(2)); map(int, "12"); zip([1], [2]); iter([1])
""",
    "As text: integers above 1,023 bits, ranges and arrays above 1,000 values, below 32 levels of nesting": """
10**400; range(1001); torch.arange(2000); deep(40)
""",
    "Written more exactly; a set of texts is sorted": """
typing.Optional[int]; list[int]; "a\\ud800b"; {"\\ud800": 1}; complex("nan")
""",
    "Read back as it is recorded": """
1 + 2j; np.complex64(1 + 2j); torch.tensor(1 + 2j); frozenset({1}); {"c": 1j}; {1: "int", "1": "text"}
""",
}

WHOLE_SAME = """
{"a": 1}; types.SimpleNamespace(a=1); collections.OrderedDict(a=1); collections.defaultdict(int, a=1); Args()
PM(); Plain(); None; {}; argparse.Namespace(**{"a-b": 1, "_c": 2}); {"a.b": 1, "a": {"b": 2}}; {"": 1}
{"_x": 1}
"""
WHOLE_DIFFERENT = """
argparse.Namespace(b=argparse.Namespace(c=2)); collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
collections.UserDict(a=1); types.MappingProxyType({"a": 1}); OC.create({"a": 1, "i": "${a}"})
OC.create({"a": "???", "b": 1}); OC.create({"h": "${oc.env:NO}"}); OC.create({1: "a"}); Slots(); {1: 2}
{(1, 2): 3}; {b"k": 1}; around({"a": 1}); pd.Series({"a": 1}); parsed(); {"-a-": 1}
"""


def parsed() -> configparser.ConfigParser:
    """The settings of an INI file."""
    parser = configparser.ConfigParser()
    parser.read_string("[s]\na=1\n")
    return parser


class Kind(NamedTuple):
    """A value in Python's words, why it differs ("" if it mustn't), and whether it is a whole configuration."""

    written: str
    why: str = ""
    whole: bool = False


def kinds() -> list[Kind]:
    """All kinds."""
    parts = [(SAME, "", False), *((text, why, False) for why, text in DIFFERENT.items())]
    parts += [(WHOLE_SAME, "", True), (WHOLE_DIFFERENT, "A whole configuration is read as what it says", True)]
    return [
        Kind(one.strip(), why, whole)
        for text, why, whole in parts
        for line in text.strip().splitlines()
        for one in line.split("; ")
    ]


def names() -> dict[str, Any]:
    """What the values are written with."""
    import numpy as np
    import omegaconf
    import pandas as pd
    import pydantic
    import torch

    class PM(pydantic.BaseModel):
        """A model with nested values."""

        x: int = 3
        inner: dict[str, Any] = {"k": (1, 2)}

    modules = ["argparse", "array", "datetime", "decimal", "fractions", "ipaddress", "types", "typing", "uuid"]
    known = {name: importlib.import_module(name) for name in modules}
    return {**globals(), **known, "np": np, "pd": pd, "torch": torch, "OC": omegaconf.OmegaConf, "PM": PM}


def read_back(value: Any) -> str:
    """What a script reads, without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))[:200]


def main(which: str) -> None:
    """One run with all values, and one for each whole configuration; what the script reads back, one line each."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    if which == "ours":
        import trackers

        trackers.install_as_wandb()
    import wandb

    known = names()
    settings = wandb.Settings(console="off", x_disable_stats=True)
    run = wandb.init(project="values", mode="offline", settings=settings)
    for number, kind in enumerate(kinds()):
        if kind.whole and run is not None:
            run.log({"a": 1})
            run.finish()
            run = None
            os.environ["TRACKER"] = "json"  # what W&B gets of a configuration is compared above
        try:
            value = eval(kind.written, known)
            if kind.whole:
                begun = wandb.init(project="whole", name=f"k{number}", config=value, mode="offline", settings=settings)
                said = read_back({name: value for name, value in begun.config.items() if not name.startswith("_")})
                begun.log({"a": 1})
                begun.finish()
            else:
                run.config.update({f"k{number}": value})
                said = read_back(run.config[f"k{number}"])
        except Exception as error:
            said = f"raises {type(error).__name__}"
        out.write(json.dumps(said) + "\n")
    out.close()


class Kept(NamedTuple):
    """What is stored, and what the script reads back."""

    stored: str
    said: str


def kept(which: str, place: pathlib.Path, start: Any) -> list[Kept]:
    """What became of each kind, from the ``.wandb`` files, and from run.json of whole configurations that ran here."""
    from tests.stores import wandb_records

    folder = place / which
    folder.mkdir()
    root = pathlib.Path(__file__).parents[2]
    variables = {
        "WANDB_MODE": "offline", "WANDB_SILENT": "true", "PYTHONPATH": str(root), "TRACKER_INLINE": "y",
        "TRACKER": "json,wandb,tensorboard,mlflow,trackio", "TRACKIO_DIR": str(folder / "trackio"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
    }  # fmt: skip
    done = start([sys.executable, __file__, which], cwd=folder, env={**os.environ, **variables})
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('"')]
    stored: dict[str, Any] = {}
    for path in folder.rglob("*.wandb"):
        name, config = "", {}
        for record in wandb_records(path):
            of = record.WhichOneof("record_type")
            name = record.run.display_name if of == "run" else name
            changed = record.run.config.update if of == "run" else record.config.update if of == "config" else ()
            config.update({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in changed})
        config.pop("_wandb", None)
        stored.update(config if "k0" in config else {name: config})
    for path in folder.glob("runs/whole/*/run.json"):
        run = json.loads(path.read_text("utf-8"))
        stored[run["name"]] = run.get("config", {})
    return [Kept(_text(stored.get(f"k{number}")), said[number]) for number, _ in enumerate(kinds())]


def _text(value: Any) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", json.dumps(value, sort_keys=True))


def compared(place: pathlib.Path, start: Any) -> list[tuple[Kind, Kept, Kept]]:
    """Each kind, with what W&B's client keeps, and what is kept here."""
    return list(zip(kinds(), kept("real", place, start), kept("ours", place, start), strict=True))


def table(found: list[tuple[Kind, Kept, Kept]]) -> str:
    """The kinds that differ, by reason, as Markdown."""
    lines = []
    for why in dict.fromkeys(kind.why for kind, _, _ in found if kind.why):
        lines += [f"**{why}**", "", "| value | W&B's client | here |", "| --- | --- | --- |"]
        for kind, theirs, ours in found:
            if kind.why == why:
                said = theirs.stored == ours.stored  # then what the script reads back differs
                shown = (one.said if said or one.said.startswith("raises") else one.stored for one in (theirs, ours))
                cells = map(_cell, shown)
                lines.append(f"| `{kind.written.replace('|', '&#124;')}` | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    text = text.replace("|", "&#124;").replace("<", "&lt;").replace("${", "$ {").replace("\\n", " ")
    return text if len(text) <= 100 else f"{text[:100]}…"


if __name__ == "__main__" and len(sys.argv) > 1:
    main(sys.argv[1])
elif __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        begin = functools.partial(subprocess.run, capture_output=True, text=True, check=False)
        print(table(compared(pathlib.Path(scratch), begin)))
