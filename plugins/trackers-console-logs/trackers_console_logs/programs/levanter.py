"""levanter: ``pbar_logger`` in ``levanter/callbacks/_metrics.py``, by ``tqdm_loggable``, and ``levanter/eval.py``."""

from __future__ import annotations

from trackers_console_logs.forms.fields import EQUALS, SECONDS
from trackers_console_logs.forms.program import EVAL, PROGRESS, RESUME, Form, Program

_RATE = (r" rate:(?:(?P<rate>NUM)it/s|(?P<each>NUM)s/it|-) remaining:(?P<left>[\d:?]{1,20}) "
         r"elapsed:(?P<elapsed>[\d:]{1,20}) postfix:(?:-\s*$)?")  # fmt: skip
PROGRAM = Program(
    "levanter",
    "src/levanter/callbacks/_metrics.py",
    "Progress on:train 20.0it/100it rate:1.5it/s remaining:00:53 elapsed:00:20 postfix:loss=7.25",
    "the count behind `train`, of which three digits are printed",
    (
        Form("Progress on:train", r"Progress on:train (?P<step>NUM[kMG]?)it/(?P<total>NUM[kMG]?)it" + _RATE,
             fields=EQUALS, looks=r"Progress on:train \d"),
        Form("Progress on:", r"Progress on:(?!train )", PROGRESS),
        Form(":: ", r":: validation loss: (?P<loss>NUM)\s*$", EVAL, later=True, named="eval/{}"),
        Form(":: ", r":: (?P<set>\S{1,200}) validation loss: (?P<loss>NUM)\s*$", EVAL, later=True,
             named="eval/{part}/{}"),
        Form(":: ", r":: (?P<set>\S{1,200}(?: macro| micro)?) loss: (?P<loss>NUM)\s*$", EVAL, later=True,
             named="{part}/{}", looks=r":: eval loss"),
        Form("Resuming training from step", r"Resuming training from step (?P<step>INT)", RESUME),
    ),
    names={"loss": "train_loss", "eval/loss": "val_loss", "rate": "perf/its_per_sec", "each": "perf/sec_per_it",
           "left": "remaining_time_s"},
    units={"left": SECONDS},
    rounded=True,
    releases=((r"Progress on|eval", "1 (2023 to 2026)"),),
)  # fmt: skip
