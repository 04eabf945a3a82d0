"""What each destination keeps of a run, and how it changes values by its nature: the table in ``docs/sources.md``.

A copy agrees with its source if it differs in nothing but this.
"""

from __future__ import annotations

from typing import Literal

import msgspec

NATIVE_INTEGERS = range(-(2**63), 2**64)


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """One destination.

    single: numbers are float32. finite: ±inf becomes ±the largest double. wide: integers beyond 64 bits are kept
        (as doubles at least); else skipped, in settings text. once: equal points of one metric at one millisecond are
        one.
    units: of which tracker the samples of the machine have the units there; "" for their own. samples: whether they
        are told from what else has no step.
    stepless: the step of metrics without one: kept as none, "zero", the "last" step before, or the "top" one so far.
    texts, config, results, tags, files: whether it has them. media: the types that come back as what they were.
    statuses: how runs end there; what it has no word for becomes the word given here.
    """

    single: bool = False
    finite: bool = False
    wide: bool = True
    once: bool = False
    stepless: Literal["kept", "zero", "last", "top"] = "kept"
    units: Literal["", "mlflow", "trackio"] = ""
    samples: bool = True
    texts: bool = True
    config: bool = True
    results: bool = True
    tags: bool = True
    files: bool = True
    media: frozenset[str] = frozenset({"image", "audio", "video", "table", "histogram", "html"})
    statuses: dict[str, str] = {}


KEEPS: dict[str, Capabilities] = {
    "": Capabilities(),
    "wandb": Capabilities(statuses={"crashed": "failed"}),
    "mlflow": Capabilities(finite=True, once=True, stepless="zero", units="mlflow"),
    "trackio": Capabilities(wide=False, units="trackio"),
    "tensorboard": Capabilities(
        single=True, stepless="last", files=False, media=frozenset({"image", "audio", "histogram"})
    ),
    "json": Capabilities(
        stepless="top", samples=False, files=False, media=frozenset()
    ),  # it names files, and holds none
    "csv": Capabilities(files=False, config=False, tags=False, media=frozenset()),
}
"""By tracker; "" is a directory of our own."""
