#!/bin/bash
# A job of LSF that LSF itself checkpoints and restarts (bchkpnt, bmig, brestart), by echkpnt.hetckpt and erestart.hetckpt.
#
#   HETCKPT_PROGRAM='./simulate --steps 1000000' bsub <checkpointed.sh
#
# `brestart` and `bmig` queue the job again, so it must not do that by itself: hence --scheduler none. The job's name stays that of
# the first run (echkpnt.hetckpt keeps it), while LSF gives a new number.
#
#BSUB -J hetckpt
#BSUB -o hetckpt.%J.out
#BSUB -n 1
#BSUB -gpu "num=1"
#BSUB -k "checkpoints method=hetckpt"

case ${1:-} in
--help) sed -n '2,/^case /{/^#BSUB/d;/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
--dry-run) echo "would run: hetckpt job --scheduler none --name lsf-${LSB_JOBID:-ID} -- ${HETCKPT_PROGRAM:-PROGRAM}" && exit ;;
esac

read -ra words <<<"${HETCKPT_PROGRAM:?is the program and its arguments}"
exec > >(trap '' TERM USR1 && exec cat) 2>&1
exec hetckpt job --scheduler none --name "lsf-${LSB_JOBID:?is set in jobs of LSF}-${LSB_JOBINDEX:-0}" -- "${words[@]}"
