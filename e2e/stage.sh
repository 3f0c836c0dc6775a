#!/bin/bash
# Runs a stage of `make test` and says how long it has taken.
#
#   stage.sh NAME COMMAND...
set -euo pipefail

name=$1
shift
started=$SECONDS
status=0
"$@" || status=$?
echo "== $name: $((SECONDS - started)) s"
exit $status
