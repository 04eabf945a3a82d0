"""timm: ``train.py`` of pytorch-image-models."""

from __future__ import annotations

from trackers_console_logs.forms.program import END, EVAL, PROGRESS, RESUME, Form, Program

_GAP = r"\s{1,9}"
_PAIR = r"\s{{1,9}}(?P<{0}>NUM)\s{{1,9}}\(\s{{0,9}}(?P<{0}_avg>NUM)\)"


def _pair(key: str, name: str) -> str:
    return key + _PAIR.format(name)


PROGRAM = Program(
    "timm",
    "train.py",
    "Train: 0 [  50/1251 (  4%)]  Loss: 6.94 (6.95)  Time: 0.512s,  500.12/s  (0.520s,  492.31/s)  LR: 1.000e-05  …",
    "updates since training began: those of the epochs before, and the line's",
    (
        Form("Train: ", r"Train: (?P<epoch>INT) \[\s{0,18}(?P<batch>INT)/(?P<of>INT) \(\s{0,3}(?P<done>INT)%\)\]"
             + _GAP + _pair("Loss:", "loss") + _GAP + r"Time: (?P<time>NUM)s,\s{0,18}(?P<rate>NUM)/s" + _GAP
             + r"\((?P<time_avg>NUM)s,\s{0,18}(?P<rate_avg>NUM)/s\)" + _GAP + r"LR: (?P<lr>NUM)" + _GAP
             + _pair("Data:", "data"),
             looks=r"Train: INT \["),
        Form("Test", r"Test(?P<set> \([^)\n]{1,40}\))?: \[\s{0,18}(?P<last>INT)/(?P=last)\]" + _GAP
             + _pair("Time:", "time") + _GAP + _pair("Loss:", "loss") + _GAP + _pair("Acc@1:", "top1") + _GAP
             + _pair("Acc@5:", "top5"), EVAL, named="eval {}{part}"),
        Form("Test", r"Test(?: \([^)\n]{1,40}\))?: \[\s{0,18}INT/INT\]\s{1,9}Time: NUM \(NUM\)", PROGRESS),
        Form("*** Best metric:", r"\*\*\* Best metric:", END),
        Form("Restoring ", r"Restoring (?:model|optimizer|AMP loss scaler) state from checkpoint", RESUME),
        Form("Loaded checkpoint ", r"Loaded checkpoint '[^'\n]{1,1000}' \(epoch (?P<epoch>INT)\)", RESUME),
    ),
    names={
        "loss": "train_loss", "loss_avg": "train_loss_avg", "time": "perf/iter_time_sec",
        "time_avg": "perf/iter_time_sec_avg", "rate": "perf/samples_per_sec", "rate_avg": "perf/samples_per_sec_avg",
        "lr": "learning_rate", "data": "data_time_s", "data_avg": "data_time_s_avg", "done": "epoch_done_percent",
        "eval loss_avg": "val_loss", "eval top1_avg": "val_top1", "eval top5_avg": "val_top5",
        "eval loss": "val_loss_last_batch", "eval top1": "val_top1_last_batch", "eval top5": "val_top5_last_batch",
        "eval time": "val_batch_time_s", "eval time_avg": "val_batch_time_s_avg",
    },
    units={"last": "ignored"},
    releases=((r"Train:|Test", "0.6 to 1.0 (2022 to 2026)"),),
)  # fmt: skip
"""An evaluation's values are the means in brackets; beside them the last batch's are kept."""
