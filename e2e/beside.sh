#!/bin/bash
# Runs a command, and another one beside it in what processor time the first leaves. The other's output comes when both have ended;
# of one that succeeds, without the lines of its tests that do.
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
other_status=0
wait "$first" || status=$?
wait "$second" || other_status=$?
if [ $other_status = 0 ]; then
	grep -v '^test .* ok$' "$log" || true
else
	cat "$log"
	status=$other_status
fi
exit $status
