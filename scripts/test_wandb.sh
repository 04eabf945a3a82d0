#!/usr/bin/env bash
# Test with other versions of W&B's client, each in an environment of its own beside .venv, whose other packages it uses.
#
#   scripts/test_wandb.sh VERSION … [-- PYTEST …]        "newest": the newest that the package index has
#
# Conformance, kills, resumed runs, offline files, a server, copies; and the scripts, calls, types and files of
# tests/as_wandb, which each version's own client makes, too: what it does otherwise stands in tests/as_wandb/versions.py.
#
# Example: scripts/test_wandb.sh 0.28.2 newest -- -k kill
set -euo pipefail
cd "$(dirname "$0")/.."

versions=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  versions+=("$1")
  shift
done
[ $# -eq 0 ] || shift
tests=(
  tests/as_wandb tests/backends/wandb tests/backends/test_{built_in,conformance,contract,growing_tables,results,second_values}.py
  tests/cli/test_wandb_scripts.py tests/copying/test_wandb.py tests/frameworks/megatron/test_wandb.py
  tests/faults/test_{audit,console,failpoints,far_side,far_side_wandb,near_side,resume,rewind}.py
  tests/readers/test_wandb_reader.py tests/support/test_client_versions.py tests/values/test_wandb_values.py
)
shared=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
failed=()
for version in "${versions[@]}"; do
  home=.venv-wandb-$version
  [ -x "$home/bin/python" ] || .venv/bin/python -m venv "$home"
  wanted=wandb==$version
  [ "$version" != newest ] || wanted=wandb
  "$home/bin/python" -m pip install --quiet --upgrade "$wanted"
  site=$("$home/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "import site; site.addsitedir('$shared')" >"$site/zz-shared.pth"
  echo "wandb $("$home/bin/python" -c 'from importlib import metadata; print(metadata.version("wandb"))')"
  "$home/bin/python" -m pytest -n "${WORKERS:-2}" --dist loadfile -p no:cacheprovider -m "not soak" \
    "${tests[@]}" "$@" || failed+=("$version")
done
[ ${#failed[@]} -eq 0 ] || { echo "failed with wandb ${failed[*]}" >&2; exit 1; }
