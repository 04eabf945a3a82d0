"""Which tests are collected: those of libraries that the extra ``dev`` has; the fixture of the core's tests.

``make test-frameworks`` sets TRACKERS_FRAMEWORKS and ``make test-loggers`` TRACKERS_LOGGERS, and run the others.
"""

from __future__ import annotations

import os

from tests.frameworks.conftest import local_runs

__all__ = ["local_runs"]
APART = ("test_catboost.py", "test_jax.py", "test_more_documented.py", "test_ray.py", "test_torchtitan.py")
ALONE = ("test_composer.py", "test_fastai.py", "test_ultralytics.py")
collect_ignore = [
    *(() if "TRACKERS_FRAMEWORKS" in os.environ else APART),
    *(() if "TRACKERS_LOGGERS" in os.environ else ALONE),
]
