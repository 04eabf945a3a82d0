"""Code that runs inside the training process: ``init``, ``Run``, the recorder, W&B's names."""
