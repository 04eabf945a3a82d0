"""fairseq: ``fairseq/logging/progress_bar.py``, log formats ``simple``, ``tqdm`` and ``json``."""

from __future__ import annotations

from trackers_console_logs.forms.fields import EQUALS, LITERAL, WORDS, FieldLayout
from trackers_console_logs.forms.program import END, EVAL, PROGRESS, RESUME, TQDM, Form, Program

_BAR = FieldLayout(b",", b"=", closes=b"]")
_EPOCH = r"epoch (?P<epoch>INT)"
PROGRAM = Program(
    "fairseq",
    "fairseq/logging/progress_bar.py",
    "… | INFO | train_inner | epoch 001:    100 / 1000 loss=5.123, ppl=34.85, wps=12345.6, num_updates=100, …",
    "`num_updates`",
    (
        Form("epoch ", _EPOCH + r":\s{1,18}INT / INT ", fields=EQUALS, step_key="num_updates",
             looks=r"epoch INT:\s{1,18}(?:INT(?: /|$)|$)"),
        Form("epoch ", _EPOCH + r":\s{1,9}(?:INT%)?\|[^\[\n]{1,1100}\[[^\],\n]{1,40}, +(?:NUM|\?)(?:it/s|s/it)\]",
             PROGRESS),
        Form("epoch ", _EPOCH + r":\s{1,9}" + TQDM + r"[\d:?]{1,12}, +NUM(?:it/s|s/it), ", bar=True, fields=_BAR,
             step_key="num_updates", looks=r"epoch INT:\s{1,9}INT%\|"),
        Form("epoch ", _EPOCH + r" \| valid on '(?P<set>[^'\n]{1,100})' subset \|", EVAL, WORDS, step_key="num_updates",
             named="{} {part}", fixed=True, looks=r"epoch INT \| valid on"),
        Form("train | epoch ", r"train \| " + _EPOCH + r" \| (?=loss )", fields=WORDS, step_key="num_updates",
             named="{} epoch", fixed=True, looks=r"train \| epoch INT \| (?:$|l)"),
        Form('{"epoch":', r'\{(?="epoch": INT, "valid_)', EVAL, LITERAL, step_key="valid_num_updates",
             looks=r'\{"epoch": INT, "valid_'),
        Form('{"epoch":', r'\{(?="epoch": INT, "train_)', fields=LITERAL, step_key="train_num_updates",
             looks=r'\{"epoch": INT, "train_'),
        Form('{"epoch":', r'\{(?="epoch": INT, "update":)', fields=LITERAL, step_key="num_updates",
             looks=r'\{"epoch": INT, "update"'),
        Form("Loaded checkpoint ", r"Loaded checkpoint .{1,1000} @ (?P<step>INT) updates", RESUME),
        Form("done training in ", r"done training in NUM seconds", END),
    ),
    names={
        "loss": "train_loss", "lr": "learning_rate", "gnorm": "grad_norm", "wps": "perf/tokens_per_sec",
        "ups": "perf/updates_per_sec", "gb_free": "memory/free_gib", "ppl": "train_perplexity",
        "loss valid": "val_loss", "ppl valid": "val_perplexity", "valid_loss": "val_loss",
        "valid_ppl": "val_perplexity", "valid_loss valid": "val_loss", "valid_ppl valid": "val_perplexity",
        "train_loss": "train_loss epoch",
    },
    releases=((r"\{", "0.9 and later, json"), (r"epoch", "0.9 and later (2020 to 2024)")),
)  # fmt: skip
"""Means of an epoch are ``… epoch``; ``loss`` is what the program prints, in base 2."""
