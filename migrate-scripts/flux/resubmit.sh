#!/bin/bash
# Submits a batch job to Flux, and again whenever it ends with exit code 75: the program was stored and is to go on.
#
#   resubmit.sh [--dry-run] [OPTIONS OF flux batch] batch.sh NAME PROGRAM ARGUMENT...
#
# Ends with the program's exit code.
set -euo pipefail

case ${1:---help} in
--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
--dry-run) shift && echo "would run, until its exit code is not 75: flux batch $*" && exit ;;
esac

while true; do
	job=$(flux batch "$@")
	code=0
	flux job status "$job" || code=$?
	[ "$code" = 75 ] || exit "$code"
	echo "resubmit.sh: $job is stored, and is submitted again" >&2
done
