#!/bin/bash
# Runs a command, and another one beside it in what processor time the first leaves. The other's output comes when both have ended.
#
#   beside.sh OTHER COMMAND...     OTHER is one word, for a shell
set -euo pipefail

other=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" &
first=$!
# Both may be cargo's: the first one finds the lock of the build directory free.
sleep 5
nice -n 19 bash -euo pipefail -c "$other" >"$log" 2>&1 &
second=$!
status=0
wait "$first" || status=$?
wait "$second" || status=$?
cat "$log"
exit $status
