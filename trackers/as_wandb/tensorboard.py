"""``wandb.tensorboard``: what a script gives to TensorBoard's writers is recorded with its run too."""

from __future__ import annotations

from typing import Any

from trackers.training.tensorboard_writers import patch, take_summary, unpatch

__all__ = ["log", "patch", "reset_state", "unpatch"]


def log(tf_summary_str_or_pb: Any, history: Any = None, step: int = 0, namespace: str = "", **kwargs: Any) -> None:
    """Record a summary of TensorBoard's with the current run.

    Args:
        tf_summary_str_or_pb: a ``Summary``, an ``Event``, one that is encoded, or a list of encoded summaries.
        step: of a summary; an event has its own.
        namespace: what stands before the tags, with "/".
        history, kwargs: as W&B takes them.
    """
    take_summary(tf_summary_str_or_pb, step, namespace)


def reset_state() -> None:
    """W&B's counters of steps: none here."""
