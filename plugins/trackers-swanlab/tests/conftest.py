"""Which tests are collected: those of SwanLab's own client need protobuf below 7, which W&B's environment doesn't have.

``make test-clients``, whose environment has the extra ``clients``, sets TRACKERS_CLIENTS and collects all.
"""

from __future__ import annotations

import os

collect_ignore = [] if "TRACKERS_CLIENTS" in os.environ else ["test_swanlab_client.py"]
