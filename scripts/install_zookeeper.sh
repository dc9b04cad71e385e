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

bash "$(dirname "$0")/apt_install.sh" zookeeper default-jre-headless || give_up "see above"
[ -e "$jar" ] || give_up "$jar is still missing"
