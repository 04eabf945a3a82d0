#!/usr/bin/env bash
# `make gpu-check`: tests/hardware/gpu_check.py with a Python that has a CUDA build of torch.
#
#   PYTHON, BASE_PYTHON   the Pythons that are asked for torch, the first of which that sees a GPU is taken
#
# Nothing else has to be installed. What that Python lacks (msgspec, pytest, …) goes into build/gpu-check with its pip,
# and changes nothing of it.
set -euo pipefail
cd "$(dirname "$0")/.."

needed=(msgspec kconfiglib psutil typer rich pynvml pytest pytest_timeout)
packages=(msgspec kconfiglib==14.1.0 psutil typer rich nvidia-ml-py pytest pytest-timeout)

python=
device=no
for candidate in "${PYTHON:-.venv/bin/python}" "${BASE_PYTHON:-python3}"; do
    if found=$("$candidate" -c 'import torch; print("yes" if torch.cuda.is_available() else "no")' 2> /dev/null); then
        python=${python:-$candidate}
        if [ "$found" = yes ]; then
            python=$candidate device=yes
            break
        fi
    fi
done
if [ -z "$python" ]; then
    echo "gpu-check: no Python with torch: make BASE_PYTHON=/path/to/python gpu-check names one" >&2
    exit 2
fi

# Without a driver and a device there is nothing to install anything for.
if [ $device = no ] && ! [ -e /dev/nvidiactl ]; then
    echo "gpu-check: no CUDA device: nothing was checked"
    exit 0
fi

if ! "$python" -c "import ${needed[*]/%/,} sys" 2> /dev/null; then
    extra=build/gpu-check/$("$python" -c 'import sys; print(sys.implementation.cache_tag)')
    export PYTHONPATH=$PWD/$extra${PYTHONPATH:+:$PYTHONPATH}
    if ! "$python" -c "import ${needed[*]/%/,} sys" 2> /dev/null; then
        echo "Installing into $extra: ${packages[*]}"
        "$python" -m pip install --quiet --disable-pip-version-check --target "$extra" "${packages[@]}"
    fi
fi
exec "$python" -m tests.hardware.gpu_check "$@"
