"""OLMo (``olmo/train.py``) and OLMo-core (``console_logger.py``): a line with the step, and one for each metric."""

from __future__ import annotations

from trackers_console_logs.forms.fields import SCALED, SECONDS
from trackers_console_logs.forms.program import END, EVAL, PROGRESS, RESUME, Form, Program

_LINE = r"\s{2,40}([A-Za-z][^\n=]{0,200})=(NUM[KMBTPE]?)\s*$"
_STEP = (r"\[step=(?P<step>\d[\d,]{0,23})/(?:(?P<total>\d[\d,]{0,23})|\?\?\?)(?:,epoch=(?P<epoch>INT))?"
         r"(?:,eta=(?P<eta>[\d.dhms]{1,30})(?:\(hard stop\))?)?\]")  # fmt: skip
PROGRAM = Program(
    "OLMo and OLMo-core",
    "src/olmo_core/train/callbacks/console_logger.py",
    "[step=10/1000,epoch=1,eta=1h2m]",
    "`step`; the values are on lines behind it (`    train/CE loss=2.304`)",
    (
        Form("[step=", _STEP, lines=_LINE, looks=r"\[step=\d"),
        Form("Finished ", r"Finished .{1,300} evals? in NUM seconds\. Metrics:", EVAL, lines=_LINE, named="eval/{}",
             looks=r"Finished .{1,300} evals in"),
        Form("[eval_step=", r"\[eval_step=(?P<batch>INT)/(?P<of>INT)\]", EVAL, lines=_LINE),
        Form("[eval=", r"\[eval=[^\]\n]{1,300}\]", PROGRESS),
        Form("Checkpoint successfully loaded", r"Checkpoint successfully loaded", RESUME),
        Form("Checkpoint loaded", r"Checkpoint loaded", RESUME),
        Form("Training complete", r"Training complete\s*$", END),
    ),
    names={
        "train/CE loss": "train_loss", "train/CrossEntropyLoss": "train_loss", "train/PPL": "train_perplexity",
        "train/Perplexity": "train_perplexity", "optim/total grad norm": "grad_norm", "eta": "eta_s",
        "optim/total_grad_norm": "grad_norm", "throughput/device/TPS": "perf/tokens_per_sec_per_gpu",
        "throughput/device/tokens_per_second": "perf/tokens_per_sec_per_gpu",
        "throughput/device/MFU": "perf/mfu_percent",
    },
    units={"eta": SECONDS},
    unit=SCALED,
    releases=((r"eta=|epoch=\d+\]", "OLMo 2023 to 2025, OLMo-core 1 and 2 (2024 to 2026)"),),
)  # fmt: skip
