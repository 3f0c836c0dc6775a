#!/bin/bash
# A job of LSF that survives preemption and the end of its time.
#
#   HETCKPT_PROGRAM='./simulate --steps 1000000' bsub <job.sh
#
#BSUB -J hetckpt
#BSUB -o hetckpt.%J.out
#BSUB -n 1
#BSUB -gpu "num=1"
#BSUB -r
#BSUB -Q "75"
#BSUB -wa USR1
#BSUB -wt 2

case ${1:-} in
--help) sed -n '2,/^case /{/^#BSUB/d;/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
--dry-run) echo "would run: hetckpt job -- ${HETCKPT_PROGRAM:-PROGRAM}" && exit ;;
esac

read -ra words <<<"${HETCKPT_PROGRAM:?is the program and its arguments}"
# LSF opens another file for output in each run: a pipe is any run's own. The signals go to
# all processes.
exec > >(trap '' TERM USR1 && exec cat) 2>&1
exec hetckpt job -- "${words[@]}"
