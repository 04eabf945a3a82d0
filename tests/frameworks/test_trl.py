"""TRL's trainers: ``TrackersCallback`` by ``report_to``, and their own samples by W&B's names."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from tests.frameworks.support import config, directories, only, results, series
from trackers.formats import conversations
from trackers.frameworks import transformers as ours
from trackers.records import Media, decode

COMPLETIONS = """
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

names = ["<pad>", "<eos>", "<unk>", "user", "assistant", ":", "+", "="] + [str(k) for k in range(20)]
words = Tokenizer(models.WordLevel({name: k for k, name in enumerate(names)}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
tokenizer.chat_template = (
    "{% for m in messages %}{{ m['role'] }} : {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}assistant : {% endif %}"
)
model = LlamaForCausalLM(LlamaConfig(vocab_size=28, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                                     num_attention_heads=2, pad_token_id=0, eos_token_id=1))
rows = [{"prompt": [{"role": "user", "content": f"{k} + {k} ="}], "target": str(2 * k)} for k in range(4)]


def exact(completions, target, **more):
    return [float(wanted in said[0]["content"].split()) for said, wanted in zip(completions, target)]


arguments = GRPOConfig("out", per_device_train_batch_size=2, num_generations=2, max_completion_length=4, max_steps=2,
                       logging_steps=1, log_completions=True, report_to=["wandb"], use_cpu=True, bf16=False,
                       save_strategy="no", disable_tqdm=True)
trainer = GRPOTrainer(model, [exact], args=arguments, train_dataset=Dataset.from_list(rows),
                      processing_class=tokenizer)
trainer.train()
"""


@pytest.mark.usefixtures("local_runs")
def test_sft_trains_two_epochs() -> None:
    """Supervised fine-tuning of a tiny model: loss, accuracy of tokens and entropy at each step, and the results."""
    assert ours.TrackersCallback  # importing the module registers it
    vocabulary = {"<pad>": 0, "<eos>": 1, "a": 2, "b": 3, "c": 4, "[UNK]": 5}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="[UNK]")
    tiny = GPT2Config(n_layer=1, n_embd=8, n_head=1, vocab_size=6, n_positions=16, bos_token_id=1, eos_token_id=1)
    arguments = SFTConfig(
        "out", num_train_epochs=2, per_device_train_batch_size=2, logging_steps=1, use_cpu=True, bf16=False,
        report_to=["trackers"], run_name="sft", save_strategy="no", max_length=8, disable_tqdm=True,
    )  # fmt: skip
    rows = Dataset.from_dict({"text": ["a b c a"] * 8})
    trainer = SFTTrainer(GPT2LMHeadModel(tiny), args=arguments, train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    (callback,) = [one for one in trainer.callback_handler.callbacks if isinstance(one, ours.TrackersCallback)]
    callback.run.finish()
    stored = only()
    logged = {row["step"]: row for row in trainer.state.log_history if "loss" in row}
    assert series(stored, "loss") == [(step, row["loss"]) for step, row in logged.items()]
    assert [step for step, _ in series(stored, "loss")] == list(range(1, 9))
    for name in ("entropy", "mean_token_accuracy", "num_tokens"):
        assert series(stored, f"train/{name}") == [(step, row[name]) for step, row in logged.items()]
    assert math.isfinite(results(stored)["train_runtime"])
    assert (stored.name, stored.status, config(stored)["max_length"]) == ("sft", "finished", 8)


@pytest.mark.usefixtures("local_runs")
def test_grpo_logs_its_completions_as_samples(tmp_path: Path) -> None:
    """A script that reports to W&B: each step's completions are conversations with their rewards, for such stores."""
    script = tmp_path / "grpo.py"
    script.write_text(COMPLETIONS)
    environment = {**os.environ, "TRACKER": "json", "WANDB_MODE": "offline", "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, "-m", "trackers.as_wandb", str(script)], env=environment, check=True)
    (run,) = directories()
    lines = (run / "streams/rank-0.1.jsonl").read_bytes().splitlines()
    tables = [record for record in map(decode, lines) if isinstance(record, Media) and record.name == "completions"]
    traces = {}
    for table in tables:
        (item,) = table.items
        assert item.meta == {conversations.SAMPLES: True}
        for span in conversations.as_spans(table, run.name, item.data["columns"], item.data["rows"]):
            traces[span.trace] = span
    assert [span.attributes["step"] for span in traces.values()] == [1, 1, 2, 2]  # its last table repeats two
    for span in traces.values():
        assert span.inputs["messages"][0]["role"] == "user"
        assert span.outputs[0]["role"] == "assistant"
        assert span.attributes["exact"] in (0.0, 1.0)
