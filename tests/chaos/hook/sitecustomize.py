"""Loaded by every Python whose PYTHONPATH has this folder: changes the package as a test asks, as it is imported."""

import os

if os.environ.get("TRACKERS_TEST_CHANGES"):
    from tests.chaos import mutants

    mutants.install(os.environ["TRACKERS_TEST_CHANGES"].split(","))
