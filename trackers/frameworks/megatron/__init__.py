"""Megatron's logging on a run: its configuration, its names in every tracker, its lines on the console.

from trackers.frameworks.megatron import LoggerConfig, start
log = start(LoggerConfig(wandb_project="p", wandb_exp_name="e"), train_iters=1000, global_batch_size=256)
log.training_log(loss_dict, {}, lr, None, iteration, loss_scale, False, skipped_iter, grad_norm, None, None)
"""

from trackers.frameworks.megatron.config import LoggerConfig
from trackers.frameworks.megatron.straggler import StragglerDetectionConfig
from trackers.frameworks.megatron.training_log import MegatronLog, start
from trackers.inspection.config import TensorInspectConfig

__all__ = ["LoggerConfig", "MegatronLog", "StragglerDetectionConfig", "TensorInspectConfig", "start"]
