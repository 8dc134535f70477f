#!/usr/bin/env bash
# Install the wheel into an environment of each Python that it claims and that is here, without extras, and diagnose a log with it.
set -euo pipefail
cd "$(dirname "$0")/.."
case=tests/cases/diagnose/out_of_memory_error/$(ls tests/cases/diagnose/out_of_memory_error | head -n 1)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
builder=.venv/bin/python
[ -x "$builder" ] || builder=python3
"$builder" -m pip wheel --quiet --no-deps --wheel-dir "$place" .
for minor in $(sed -n 's/.*"Programming Language :: Python :: 3\.\([0-9]*\)".*/\1/p' pyproject.toml); do
  python=
  for candidate in "python3.$minor" "$HOME"/.pyenv/versions/3."$minor".*/bin/python; do
    if "$candidate" -c '' 2>/dev/null; then python=$candidate; fi
  done
  [ -n "$python" ] || { echo "skipped: there is no Python 3.$minor here"; continue; }
  "$python" -m venv "$place/$minor" 2>/dev/null || { echo "skipped: Python 3.$minor here makes no environments"; continue; }
  "$place/$minor/bin/python" -m pip install --quiet "$place"/*.whl
  XDG_CACHE_HOME=$place XDG_STATE_HOME=$place "$place/$minor/bin/nightshift" diagnose --json "$case" | grep -q '"reason": "out_of_memory_error"'
  echo "works: the wheel on Python 3.$minor"
done
