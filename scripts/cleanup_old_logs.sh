#!/bin/bash
# Compress *.log that weren't written for 7 days, delete *.log.gz after 30; results (JSON, reports) are kept, and a log's
# own result is extracted before the log is deleted, unless it was before.
#
#   scripts/cleanup_old_logs.sh [DIR…] [--dry-run] [--compress-after DAYS] [--delete-after DAYS] [--json]
#
# Without a directory: benchmark_results/. PYTHON names another interpreter.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
if [ -z "${PYTHON:-}" ]; then
    PYTHON=python3
    if [ -x "$here/python3" ]; then # installed into an environment's bin
        PYTHON="$here/python3"
    fi
fi
PYTHONPATH="$(dirname "$here")${PYTHONPATH:+:$PYTHONPATH}" exec "$PYTHON" -m trackers prune --logs --extract --yes "$@"
