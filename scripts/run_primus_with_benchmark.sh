#!/usr/bin/env bash
# Run a training command, save its output as benchmark_results/primus_training_{timestamp}.log, extract the benchmark's
# result from it, and end with the command's own exit code.
#
#   EXP=… run_primus_with_benchmark.sh [--output-dir DIR] [--num-gpus N] COMMAND…
#
# Works from a checkout, and where trackers is installed. PYTHON names another interpreter.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
if [ -z "${PYTHON:-}" ]; then
    PYTHON=python3
    if [ -x "$here/python3" ]; then # installed into an environment's bin
        PYTHON="$here/python3"
    fi
fi
TRACKERS_CHECKOUT=
if [ -e "$here/../trackers/__init__.py" ]; then
    TRACKERS_CHECKOUT="$(dirname "$here")"
fi
export TRACKERS_CHECKOUT
exec "$PYTHON" -c '
import os, sys
home = os.environ.pop("TRACKERS_CHECKOUT")
if sys.path[:1] == [""]:
    del sys.path[0]
if home:
    sys.path[:0] = [home, f"{home}/plugins/trackers-console-logs"]
from trackers.cli.scripts import run
try:
    from trackers_console_logs import benchmark
except ModuleNotFoundError:
    sys.exit("run_primus_with_benchmark: it is of another distribution: pip install \"trackers-relay[logs]\"")
run(benchmark.RUN, benchmark.run)
' "$@"
