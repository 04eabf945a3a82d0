"""Keras: ``keras/src/utils/progbar.py``."""

from __future__ import annotations

import re

from trackers_console_logs.forms.fields import DASHES, SECONDS, FieldLayout
from trackers_console_logs.forms.program import EPOCH, EVAL, Form, Program

_EACH = r"(?P<time>\d{1,12}(?:s|ms|us))/(?:step|epoch)(?: - |\s*$)"
_LAST = r"\.\d{4}(?:e[-+]\d\d)?|nan|inf|\A"
"""The end of a line: values have four decimals. A line may have none."""
_AT = r"\s*(?P<batch>INT)/(?:(?P<of>INT)|Unknown) "


_ENDED = FieldLayout(
    pattern=re.compile(rb"((?:[A-Za-z_][\w/.-]{0,120}(?=: ))?)(?:: (\S+)|\d[\w.]{0,20}/(?:epoch|step))(?: - |\s*$)")
)
"""``key: value - …``, with the times of an epoch and a step behind them."""


def _form(word: str, head: str, looks: str, fields: FieldLayout = DASHES) -> Form:
    last = _LAST if fields is DASHES else ""
    alone = Form(word, head + r"(?![^\n]{0,4000}\bval_)", EVAL, fields, named="evaluate/{}", first=False, last=last)
    return Form(word, head, fields=fields, first=False, bar=True, looks=looks, outside=alone, last=last)


PROGRAM = Program(
    "Keras",
    "keras/src/utils/progbar.py",
    "32/32 ━━━━━━━━━━━━━━━━━━━━ 2s 10ms/step - accuracy: 0.5500 - loss: 0.9000 - val_loss: 0.8000",
    "batches since training began: those of the epochs before (`Epoch 1/2`), and the bar's",
    (
        Form("Epoch ", r"Epoch (?P<epoch>INT)/(?P<epochs>INT)\s*$", EPOCH),
        _form("━", _AT + r"[━\s]{1,400}[\d:]{1,12}s? " + _EACH, r"\s*INT/INT ━"),
        _form("] ", _AT + r"\[[=>.]{2,80}\] (?:- )?(?:ETA: )?[\d:]{1,12}s?(?: (?:- )?" + _EACH
              + r"| - (?=[A-Za-z_]\w*: ))", ""),
        _form("/step", _AT + r"(?:- )?[\d:]{1,12}s? (?:- )?" + _EACH, ""),
        _form("/step", _AT + r"- [\d:]{1,12}s? - (?=[^\n]{1,4000} - (?P<time>\d{1,12}(?:s|ms|us))/step\s*$)", "",
              _ENDED),
    ),
    names={"loss": "train_loss", "val_loss": "val_loss", "time": "perf/iter_time_sec", "learning_rate": "learning_rate",
           "lr": "learning_rate"},
    units={"time": SECONDS},
    first_epoch=1,
    counted=True,
    releases=((r"━|/\d{1,18} - [\d:]{1,12}s - \d{1,12}[mu]?s/(?:step|epoch) - ", "3 (2023 to 2026)"),
              (r"\[=|- \d", "2"), (r"/step", "2 and 3")),
)  # fmt: skip
"""``evaluate`` prints such a line, too, without an epoch or ``val_``: ``evaluate/…``, at the last step."""
