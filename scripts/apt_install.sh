#!/usr/bin/env bash
# Install Debian packages, as root or through sudo: scripts/apt_install.sh PACKAGE... On failure, print the reason.
set -euo pipefail

fail() {
    echo "cannot install Debian's $packages: $1" >&2
    exit 1
}

packages=$*
command -v apt-get >/dev/null || fail "apt-get is missing"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "neither root nor sudo"
    as_root=(sudo)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "installing Debian's $packages"
"${as_root[@]}" apt-get update >"$log" 2>&1 || true # one source that fails is no reason: the lists may be good enough
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >>"$log" 2>&1 </dev/null ||
    fail "$(grep -a '^E:' "$log" | tail -n 1)"
