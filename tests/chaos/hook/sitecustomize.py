"""Loaded by every Python whose PYTHONPATH has this folder: changes the package as a test asks, as it is imported."""

import os
import time

if skew_s := float(os.environ.get("TRACKERS_TEST_SKEW_S", 0)):
    time.time = lambda true=time.time: true() + skew_s  # type: ignore[misc]
if os.environ.get("TRACKERS_TEST_CHANGES"):
    from tests.chaos import mutants

    mutants.install(os.environ["TRACKERS_TEST_CHANGES"].split(","))
