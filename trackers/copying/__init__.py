"""Any source to any tracker: read into a journal, deliver that, read the destination back and compare.

from trackers.copying import copy
for report in copy("wandb:team/gpt2", "mlflow:sqlite:///mlflow.db#gpt2"):
    print(report)
"""

from trackers.copying.transfer import CopyReport, copy, follow

__all__ = ["CopyReport", "copy", "follow"]
