"""Lightning: ``lightning/pytorch/callbacks/progress/tqdm_progress.py`` and ``rich_progress.py``."""

from __future__ import annotations

import re

from trackers_console_logs.forms.fields import IGNORED, SECONDS, FieldLayout
from trackers_console_logs.forms.program import END, EPOCH, EVAL, PROGRESS, RESUME, SIGN, TQDM, Form, Program

_EPOCH = r"Epoch (?P<epoch>INT):\s{1,20}"
_RICH = FieldLayout(pattern=re.compile(rb"([A-Za-z_][^\s:]{0,300}): ?([^\s:]{1,100})(?:\s+|$)"))
_MORE = r"\s{20,200}([A-Za-z_][^\s:]{0,300}): ?(NUM)\s*$"
_LINE = r"(?:│|\|)"
_HEAD = r"\s*\S{4,40} metric\s{2,200}DataLoader INT\s*"
_VALUE = r"\s{2,200}([A-Za-z_]\S{0,200})\s+(NUM)\s*$"
_TABLE = FieldLayout(
    pattern=re.compile(rf"([A-Za-z_]\S{{0,200}})\s{{1,200}}{_LINE}\s{{1,200}}(\S{{1,100}})\s{{1,200}}{_LINE}".encode())
)
_BARE = r"[^\[\n]{1,1100}\[[^\],\n]{1,40}, +(?:NUM|\?)(?:it/s|s/it)\]\s*$"
_STARTED = r"(?:0%\|[^|\n]{0,1000}|\|[^|\n]{0,1000})\| *0/"
PROGRAM = Program(
    "Lightning",
    "lightning/pytorch/callbacks/progress/tqdm_progress.py",
    "Epoch 0: 100%|██████████| 10/10 [00:01<00:00,  9.50it/s, v_num=0, train_loss=2.300, val_loss=1.500]",
    "batches since training began: those of the epochs before, and the bar's",
    (
        Form("Epoch ", r"Epoch INT:\s{1,20}(?:" + _STARTED + r"|" + _BARE + r")", PROGRESS, first=False),
        Form("Epoch ", _EPOCH + TQDM + r"[\d:?]{1,12}, +(?:(?P<rate>NUM)it/s|(?P<each>NUM)s/it|\?it/s)(?:, )?",
             first=False, bar=True, fields=FieldLayout(b",", b"=", closes=b"]"), needs=("v_num",),
             looks=r"Epoch INT:\s{1,20}\d{1,3}%\|"),
        Form("Epoch ", r"Epoch (?P<epoch>INT)/(?P<last>-?INT)\s{1,9}[━╸╺ ]{1,1000}(?P<batch>INT)/(?P<of>INT) "
             r"(?P<spent>[\d:]{1,12}) • [\d:-]{1,12} (?P<rate>NUM)it/s", fields=_RICH, needs=("v_num",), first=False,
             bar=True, lines=_MORE, looks=r"Epoch INT/INT\s+[━╸╺]"),
        Form("Epoch ", r"Epoch (?P<epoch>INT):\s{1,20}\d{1,3}%\s*$", EPOCH, first=False),
        Form("v_num=", r"(?:\s|\xc2\xa0){0,9}(?P<batch>INT)/(?P<of>INT) \[(?P<elapsed>[\d:]{1,12})<[\d:?]{1,12},\s{1,3}"
             r"(?:(?P<rate>NUM)it/s|(?P<each>NUM)s/it|\?it/s), ", first=False, bar=True,
             fields=FieldLayout(b",", b"=", closes=b"]"), always=("v_num",)),  # of a notebook's page
        Form("DataLoader ", r"(?:Sanity Checking|Validation|Testing|Predicting) DataLoader INT:?", SIGN,
             first=False),
        Form("GPU available: ", r"GPU available: (?:True|False)", SIGN),
        Form("│", rf"{_LINE}(?=\s+[A-Za-z_]\S{{0,200}}\s+{_LINE}\s+NUM\s+{_LINE}\s*$)", EVAL, _TABLE, later=True,
             first=False, looks=rf"{_LINE}\s+[A-Za-z_]\S{{0,200}}\s+{_LINE}\s+NUM\s"),
        Form(" metric  ", _HEAD + "$", EVAL, later=True, first=False, lines=_VALUE, looks=_HEAD),
        Form("`Trainer.fit` stopped", r"`Trainer\.fit` stopped:", END),
        Form("Restor", r"Restor(?:ing states|ed all states) from the checkpoint", RESUME),
    ),
    names={"train_loss": "train_loss", "val_loss": "val_loss", "rate": "perf/its_per_sec", "each": "perf/sec_per_it",
           "spent": "epoch_time_s"},
    units={"spent": SECONDS, "v_num": IGNORED, "last": IGNORED},
    counted=True,
    releases=((r"Epoch", "2 (2023 to 2026)"),),
)  # fmt: skip
