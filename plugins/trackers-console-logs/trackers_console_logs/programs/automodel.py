"""NeMo AutoModel: ``nemo_automodel/recipes/llm/train_ft.py`` and its other recipes."""

from __future__ import annotations

from trackers_console_logs.forms.fields import WORDS
from trackers_console_logs.forms.program import EVAL, Form, Program

_STEP = r"step (?P<step>INT) \| epoch (?P<epoch>INT) \|"
_NAME = r'(?:(?!\| loss |\[val\])[^\n]){1,400}(?<!")'
PROGRAM = Program(
    "NeMo AutoModel",
    "nemo_automodel/recipes/llm/train_ft.py",
    "step 10 | epoch 0 | loss 1.2345 | grad_norm 0.9000 | lr 1.00e-05 | mem 12.34 GiB | tps 2345.67(1172.83/gpu)",
    "`step`",
    (
        Form("[val]", rf'\[val\] (?:(?:name )?"?(?:default|(?P<set>{_NAME}))"? \| )?{_STEP}',
             EVAL, WORDS, named="{} validation {part}", needs=("lr",), fixed=True,
             optional=("tool_name_acc", "args_json_valid", "args_exact_match"),
             looks=r"\[val\] (?:name|step|[^\n]{1,400} \|)"),
        Form("step ", _STEP, fields=WORDS, needs=("lr+mem", "val_*"), fixed=True, looks=r"step INT(?: \|| ?$)"),
    ),
    names={
        "loss": "train_loss", "loss validation": "val_loss", "lr": "learning_rate", "grad_norm": "grad_norm",
        "mem": "memory/max_allocated_gib", "tps": ("perf/tokens_per_sec", "perf/tokens_per_sec_per_gpu"),
        "time": "perf/iter_time_sec", "val_loss": "val_loss",
    },
    releases=((r"\[val\] name|epoch", "2025 and 2026"),),
)  # fmt: skip
