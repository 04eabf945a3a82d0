"""Ready-made use from training frameworks: Megatron, NeMo, callbacks."""
