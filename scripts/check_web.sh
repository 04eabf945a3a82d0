#!/usr/bin/env bash
# Style and types of the pages' scripts: prettier, eslint, and tsc with the types that stand in their comments.
# The tools come from npm into .cache/web; exit code 75 where they can't be had. FIX=y: write what prettier and eslint mend.
# TOOLS=y: bring the tools alone.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=.cache/web
command -v npm >/dev/null || { echo "make check-web needs Node.js 20 or newer with npm (Debian: nodejs npm)" >&2; exit 75; }
mkdir -p "$tools"
command -v flock >/dev/null && { exec 9>"$tools/.lock"; flock 9; }  # the tests may bring them at the same time
if ! cmp -s scripts/web/package.json "$tools/package.json" || [ ! -x "$tools/node_modules/.bin/tsc" ]; then
    cp scripts/web/package.json "$tools/package.json.new"
    mapfile -t packages < <(
        node -p 'Object.entries(require("./scripts/web/package.json").devDependencies).map(entry => entry.join("@")).join("\n")'
    )
    npm install --prefix "$tools" --no-save --no-package-lock --no-audit --no-fund --loglevel=error "${packages[@]}" ||
        { echo "npm can't install the tools of make check-web" >&2; exit 75; }
    mv "$tools/package.json.new" "$tools/package.json"
fi
[ -z "${TOOLS:-}" ] || exit 0
cp scripts/web/eslint.config.mjs "$tools/"  # it imports its rules from beside itself
bin=$tools/node_modules/.bin
scripts=(trackers/ui/page/*.js trackers/plotting/*.js)
if [ -n "${FIX:-}" ]; then
    "$bin/eslint" --config "$tools/eslint.config.mjs" --fix "${scripts[@]}" || true
    "$bin/prettier" --log-level warn --print-width 120 --write "${scripts[@]}"
fi
"$bin/prettier" --log-level warn --print-width 120 --check "${scripts[@]}"
"$bin/eslint" --config "$tools/eslint.config.mjs" "${scripts[@]}"
"$bin/tsc" --project scripts/web/tsconfig.json
