"""Found by Python when it starts, in programs that ``python -m trackers.as_wandb`` runs: answers ``import wandb``.

A ``sitecustomize`` of the environment that this one hides is run too.
"""

import importlib.machinery
import importlib.util
import os
import sys

if __name__ == "sitecustomize":
    _here = os.path.dirname(os.path.abspath(__file__))
    _hidden = importlib.machinery.PathFinder.find_spec(
        "sitecustomize", [part for part in sys.path if os.path.abspath(part) != _here]
    )
    if _hidden is not None and _hidden.loader is not None:
        _module = importlib.util.module_from_spec(_hidden)
        sys.modules["sitecustomize"] = _module
        _hidden.loader.exec_module(_module)
    try:
        import trackers.as_wandb
    except ImportError as _error:
        print(f"trackers.as_wandb: `import wandb` isn't answered in this program: {_error}", file=sys.stderr)
    else:
        trackers.as_wandb.install_as_wandb()
