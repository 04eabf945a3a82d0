"""Tensor inspection: statistics of what goes through a model's layers, chosen by nvdlfw-inspect's feature format."""

from trackers.inspection.config import TensorInspectConfig

__all__ = ["TensorInspectConfig"]
