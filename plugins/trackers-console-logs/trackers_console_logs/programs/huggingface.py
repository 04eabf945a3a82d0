"""Hugging Face's Trainer: ``ProgressCallback`` and ``PrinterCallback`` in ``transformers/trainer_callback.py``.

TRL, LLaMA-Factory, axolotl, unsloth and ms-swift print the same dictionaries, with more keys. Names stay Trainer's
own, as in its ``trainer_state.json``.
"""

from __future__ import annotations

from trackers_console_logs.forms.fields import LITERAL, SECONDS
from trackers_console_logs.forms.program import BAR, EVAL, RESUME, TQDM, Form, Program

_LOOKS = r"\{'(?:loss|eval_\w+|grad_norm|train_runtime|learning_rate|reward|num_tokens)(?:'|$)"
_KEYS = ("epoch+learning_rate", "epoch+grad_norm", "epoch+num_tokens", "epoch+reward*")
_STEP = "global_step/max_steps"
_OTHERS = (r"['\"]epoch['\"]: [1-9]\d*[,}\s]|['\"]: ?(?P<quote>['\"])(?!(?:-?inf(?:inity)?|nan|none|n/a)(?P=quote))"
           r"[^\d\s.+\-\[]")  # fmt: skip
"""A script's own dictionary: Trainer's epochs are no integers, but for 0, and its values no words."""
PROGRAM = Program(
    "Hugging Face Trainer",
    "src/transformers/trainer_callback.py",
    "{'loss': 2.5, 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': 0.5}",
    "the progress bar's (`500/10000`), before or behind the row as the epochs agree with it, else by the epoch; where "
    "neither is there, rows are numbered, and that is said",
    (
        Form("{'train_runtime'", r"\{(?='train_runtime')", fields=LITERAL, ends=True, looks=_LOOKS),
        Form("{'eval_", r"\{(?='eval_)", EVAL, LITERAL, always=("eval_*",), needs=("eval_runtime",), looks=_LOOKS,
             never=_OTHERS),
        Form("{'", r"\{(?='[^'\n]{1,300}':)", fields=LITERAL, always=("epoch",), needs=_KEYS, looks=_LOOKS,
             step_key=_STEP, never=_OTHERS),
        Form('{"', r'\{(?="[^"\n]{1,300}":)', fields=LITERAL, always=("epoch",), needs=(_STEP,), step_key=_STEP,
             never=_OTHERS),
        Form("%|", r"\s*" + TQDM, BAR, first=False),
        Form("Loading model from ", r"Loading model from [^\n]{1,1000}checkpoint-INT\b", RESUME),
        Form("Continuing training from", r"Continuing training from (?:checkpoint|epoch|global step)", RESUME),
    ),
    names={_STEP: ("global_step", "max_steps")},
    units={"elapsed_time": SECONDS, "remaining_time": SECONDS},
    by_bar=True,
    releases=((r"'(?:loss|eval_runtime|train_runtime)': '", "transformers 5"), (r"\{'", "transformers 4")),
)  # fmt: skip
"""ms-swift's rows name their step; it prints them as JSON, too."""
