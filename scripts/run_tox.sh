#!/usr/bin/env bash
# Run tox with every Python that is installed, pyenv's included: scripts/run_tox.sh run|run-parallel [option...]
#
# pyenv keeps each Python in a folder of its own, off the PATH, where tox does not look.
set -euo pipefail
cd "$(dirname "$0")/.."

interpreters=()
for minor in 10 11 12 13; do
    found=$(compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor.*/bin/python3.$minor" | sort -V | tail -n 1 || true)
    [ -n "$found" ] || found=$(command -v "python3.$minor" || true)
    if [ -n "$found" ] && "$found" -c '' 2>/dev/null; then
        interpreters+=("$found")
    else
        echo "not tested: Python 3.$minor is not installed"
    fi
done

command=$1
shift
exec .venv/bin/tox "$command" ${interpreters[@]+--discover "${interpreters[@]}"} "$@"
