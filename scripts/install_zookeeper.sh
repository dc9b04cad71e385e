#!/usr/bin/env bash
# Debian's ZooKeeper for the tests, unless there is one already. Prints one line and fails where it cannot be had.
set -euo pipefail

jar=/usr/share/java/zookeeper.jar

give_up() {
    echo "no ZooKeeper for the tests ($1): install Debian's packages 'zookeeper' and 'default-jre-headless'," \
        "or set ZOOKEEPER_CLASSPATH to the jars of one" >&2
    exit 1
}

if [ -n "${ZOOKEEPER_CLASSPATH:-}" ] && ! command -v java >/dev/null; then
    give_up "there is no java"
fi
if [ -n "${ZOOKEEPER_CLASSPATH:-}" ] || { [ -e "$jar" ] && command -v java >/dev/null; }; then
    exit 0
fi

command -v apt-get >/dev/null || give_up "there is no apt-get here"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || give_up "neither root nor sudo"
    as_root=(sudo)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "installing Debian's zookeeper"
"${as_root[@]}" apt-get update >"$log" 2>&1 || true # one source that fails is no reason: the lists may be good enough
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends zookeeper default-jre-headless \
    >>"$log" 2>&1 </dev/null || give_up "apt-get install says: $(grep -a '^E:' "$log" | tail -n 1)"
[ -e "$jar" ] || give_up "$jar is still missing"
