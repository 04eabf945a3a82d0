"""MMEngine: ``mmengine/runner/log_processor.py``: OpenMMLab's MMDetection, MMPretrain, MMSegmentation and others."""

from __future__ import annotations

from trackers_console_logs.forms.fields import SECONDS, SPACED
from trackers_console_logs.forms.program import EVAL, PROGRESS, RESUME, TRAIN, Form, Program

_AT = r"\s{0,9}(?:\[\s{0,9}(?P<epoch>INT)\])?\[\s{0,18}(?P<batch>INT)/\s{0,18}(?P<of>INT)\]\s"


def _forms(mode: str, kind: str, named: str) -> tuple[Form, Form]:
    looks = rf"\({mode}\)\s{{0,9}}\["
    at = _AT.replace("<batch>", "<step>").replace("<of>", "<total>") if kind == TRAIN else _AT
    return (
        Form(f"Epoch({mode})", rf"Epoch\({mode}\)" + _AT, kind, SPACED, named=named, fixed=True, looks="Epoch" + looks),
        Form(f"Iter({mode})", rf"Iter\({mode}\)" + at, kind, SPACED, named=named, fixed=True, looks="Iter" + looks),
    )


PROGRAM = Program(
    "MMEngine",
    "mmengine/runner/log_processor.py",
    "Epoch(train)  [1][ 50/196]  lr: 1.0000e-02  eta: 0:01:00  time: 0.1200  data_time: 0.0100  loss: 1.2345",
    "iterations since training began: those of the epochs before, and the line's",
    (
        *_forms("train", TRAIN, "{}"),
        *_forms("val", EVAL, "val/{}"),
        *_forms("test", EVAL, "test/{}"),
        Form("Saving checkpoint at", r"Saving checkpoint at (?P<step>INT) iterations", PROGRESS),
        Form("resumed epoch:", r"resumed epoch: INT, iter: (?P<step>INT)", RESUME),
    ),
    names={"loss": "train_loss", "val/loss": "val_loss", "lr": "learning_rate", "grad_norm": "grad_norm",
           "time": "perf/iter_time_sec", "memory": "memory/max_allocated_mib", "val/memory": "val/max_allocated_mib",
           "eta": "eta_s", "val/eta": "val/eta_s"},
    units={"eta": SECONDS},
    first_epoch=1,
    releases=((r"\((?:train|val|test)\)", "0.1 and later (2022 to 2026)"),),
)  # fmt: skip
