"""Ultralytics: ``ultralytics/engine/trainer.py``: columns under a head, and a progress bar behind them."""

from __future__ import annotations

from trackers_console_logs.forms.program import END, EVAL, HEADER, RESULT, RESUME, Form, Program

_LOSSES = ("box", "cls", "dfl", "seg", "sem", "pose", "kobj", "rle", "angle", "giou", "l1")
_METRICS = {"P": "precision", "R": "recall", "mAP50": "mAP50", "mAP50-95": "mAP50-95"}
_BAR = (
    r":\s+\d{1,3}%\s{0,9}(?=[^\s\d])(?:.{0,1500}(?:\[|/(?:s|it) {1,9})(?P<elapsed>[\d:.]{1,12}s?)(?=<|\s*$))?.{0,1500}"
)
_ALL = r"\s*all(?P<cells>(?:\s+NUM){2,40})\s*$"
_CLASS = r"\s*\S.{0,200}?(?P<cells>(?:\s+NUM){2,40})\s*$"
_BEST = Form("all ", _ALL, RESULT, first=False, later=True, named="best/{}", lines=_CLASS)
"""Behind training the best checkpoint is validated once more, which says what each class has."""
PROGRAM = Program(
    "Ultralytics",
    "ultralytics/engine/trainer.py",
    "      1/100      2.37G      1.234      2.345      1.456         12        640: 100% ━━━━━━━━━━━━ 8/8 3.4it/s 2.4s",
    "the epoch",
    (
        Form("GPU_mem", r"\s*Epoch\s+(?P<columns>GPU_mem(?:\s+\S{1,100}){1,40})\s*$", HEADER, first=False),
        Form("mAP50", r"\s*Class\s+(?P<columns>Images\s.{0,400}?)(?:" + _BAR + r")?\s*$", HEADER, first=False,
             named=EVAL),
        Form("top1_acc", r"\s*classes\s+(?P<columns>top1_acc.{0,300}?)(?:" + _BAR + r")?\s*$", HEADER,
             first=False, named=EVAL),
        Form("%", r"\s*(?P<epoch>INT)/(?P<epochs>INT)(?P<cells>(?:\s+NUM[GM]?){2,40})" + _BAR + "$",
             first=False, bar=True, looks=r"\s*INT/INT\s+[\d.]{1,12}[GM]\s"),
        Form("G ", r"(?!)", first=False, looks=r"\s*INT/INT\s+[\d.]{1,12}G\s"),  # cut before the bar
        Form("all ", _ALL, EVAL, first=False, later=True, named="val/{}", outside=_BEST, lines=_CLASS,
             looks=r"(?<=\s{4})all\s+\d"),
        Form("Resuming training", r"Resuming training .{1,500} from epoch (?P<next>INT) to", RESUME),
        Form("epochs completed in", r"\s*INT epochs completed in NUM hours", END, first=False),
        Form("Validating ", r"Validating \S.{0,1000}\.pt\.\.\.", END),
    ),
    names={
        "GPU_mem": "memory/reserved_gib",
        "loss": "train/loss", **{f"{name}_loss": f"train/{name}_loss" for name in _LOSSES},
        **{f"{of}/{kind}({key}": f"{'best/' * (of == 'best')}metrics/{name}({kind[0]})"
           for of in ("val", "best") for kind in ("Box", "Mask", "Pose") for key, name in _METRICS.items()},
        "val/top1_acc": "metrics/accuracy_top1", "val/top5_acc": "metrics/accuracy_top5",
        "best/top1_acc": "best/metrics/accuracy_top1", "best/top5_acc": "best/metrics/accuracy_top5",
    },
    releases=((r"%\s*━|%\s*─", "8.3.200 and later (2025, 2026)"), (r"%\|", "8 (2023 to 2025)"), (r"all", "8")),
)  # fmt: skip
