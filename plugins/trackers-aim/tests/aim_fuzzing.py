"""Aim's stores for ``make fuzz``, as the stand-in for RocksDB has them."""

from __future__ import annotations

import random
from pathlib import Path

import aim_stand_in as stand_in

from tests.fuzz import mutate
from tests.fuzz.targets import Target, everything, fetched


def seeds(place: Path, run: Path) -> None:
    """A store of Aim, as the stand-in for RocksDB has it."""
    place = place / "aim"
    place.mkdir(parents=True)
    stand_in.with_objects(place)
    points = [(step, stand_in.T0 + step, 1 / (step + 1), step // 4) for step in range(12)]
    series = {("loss", 1): points, ("__system__gpu", 2): points[:3]}
    contexts = {1: {"subset": "train", "fold": 1}, 2: {"gpu": 0}}
    stand_in.run(place, "c3d4", params={"lr": 0.1, "list": [1, {"a": None}]}, series=series, contexts=contexts)
    stand_in.properties(place, tags=("a",))


def framed(data: bytes, dice: random.Random) -> bytes:
    """Keys and values of Aim's stand-in, one of them changed."""
    items = list(stand_in.unpacked(data).items())
    if not items:
        return data
    at = dice.randrange(len(items))
    name, value = items[at]
    odd = bytes([dice.randrange(17)]) + dice.choice((b"", b"\0" * 8, b"\xff" * 8, b"x", value[1:]))
    changed = dice.choice((
        (mutate.blind(name, dice), value), (name, mutate.blind(value, dice)), (name, odd),
        (name, dice.choice(items)[1]), (dice.choice(items)[0], value), (name * dice.choice((2, 90)), value),
    ))  # fmt: skip
    return stand_in.packed(dict([*items[:at], changed, *items[at + 1 :]]))


def targets() -> dict[str, Target]:
    """What is damaged, and how."""
    return {
        "aim": Target("aim", ".aim/*/chunks/*/*", (mutate.blind, framed), _read),
        "aim-sqlite": Target("aim", ".aim/*.sqlite", (), _read, whole=mutate.sqlite),
    }


def _read(place: Path) -> None:
    """RocksDB itself, and damage to its files, is in test_aim_reader_client.py."""
    with stand_in.installed():
        everything(f"aim:{place}")
        fetched(f"aim:{place}", place)
