"""The tables of all programs, in the order in which their forms are tried."""

from __future__ import annotations

from trackers_console_logs.forms.program import Program
from trackers_console_logs.programs import (
    accelerate,
    automodel,
    deepspeed,
    fairseq,
    gpt_neox,
    huggingface,
    keras,
    levanter,
    lightning,
    litgpt,
    maxtext,
    megatron,
    megatron_bridge,
    megatron_deepspeed,
    mmengine,
    nanogpt,
    nemo,
    olmo,
    prime_rl,
    primus,
    timm,
    torchtitan,
    ultralytics,
    verl,
)

ALL: tuple[Program, ...] = (
    gpt_neox.PROGRAM, megatron.PROGRAM, primus.PROGRAM, megatron_bridge.PROGRAM, megatron_deepspeed.PROGRAM,
    nemo.PROGRAM, automodel.PROGRAM, torchtitan.PROGRAM, maxtext.PROGRAM, nanogpt.NANOGPT, nanogpt.NANOCHAT,
    nanogpt.MODDED, litgpt.PROGRAM, olmo.PROGRAM, levanter.PROGRAM, huggingface.PROGRAM, accelerate.PROGRAM,
    deepspeed.PROGRAM, lightning.PROGRAM, keras.PROGRAM, verl.PROGRAM, prime_rl.PROGRAM, ultralytics.PROGRAM,
    mmengine.PROGRAM, timm.PROGRAM, fairseq.PROGRAM,
)  # fmt: skip
