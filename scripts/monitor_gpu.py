#!/usr/bin/env python3
"""Record what the GPUs do, alone or while a training runs: python scripts/monitor_gpu.py --help"""

from __future__ import annotations

import sys

from trackers.cli.scripts.monitor_gpu import main

if __name__ == "__main__":
    sys.exit(main())
