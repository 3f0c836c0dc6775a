#!/bin/bash
# A batch job of Flux that is stored before its time is up, and goes on when it is submitted again.
#
#   resubmit.sh -t 8h batch.sh NAME PROGRAM ARGUMENT...        (submits it until the program has ended)
#   flux batch -t 8h batch.sh NAME PROGRAM ARGUMENT...         (once)
#
# NAME is the job's name in the store (HETCKPT_STORE): Flux gives another number each time.
#
# flux: -N1
# flux: -n1
# flux: -g1
# flux: --signal=SIGUSR1@120s

case ${1:---help} in
--help) sed -n '2,/^case /{/^# flux:/d;/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
--dry-run) shift && echo "would run: hetckpt job --name $1 -- ${*:2}" && exit ;;
esac

name=$1
shift
# Each run of the job has another file for output: a pipe is any run's own. It must outlive
# the signals.
exec > >(trap '' TERM USR1 && exec cat) 2>&1
exec hetckpt job --name "$name" -- "$@"
