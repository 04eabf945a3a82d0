"""``TrackersCallback`` in TRL's trainers, by ``report_to``: what they log beside the loss is recorded, too."""

from __future__ import annotations

import math

import pytest
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from tests.frameworks.support import config, only, results, series
from trackers.frameworks import transformers as ours


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
