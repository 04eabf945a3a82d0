"""Which tests are collected: those of libraries that the extra ``dev`` has; the fixture of the core's tests.

``make test-frameworks`` sets TRACKERS_FRAMEWORKS and ``make test-loggers`` TRACKERS_LOGGERS, and run the others.
"""

from __future__ import annotations

import os

from tests.frameworks.conftest import local_runs

__all__ = ["local_runs"]
collect_ignore = [
    *(() if "TRACKERS_FRAMEWORKS" in os.environ else ("test_ray.py", "test_more_documented.py")),
    *(() if "TRACKERS_LOGGERS" in os.environ else ("test_composer.py", "test_fastai.py", "test_ultralytics.py")),
]
