#!/bin/bash
# A job of PBS that survives being requeued.
#
#   qsub -v program='./simulate --steps 1000000' job.sh
#
#PBS -r y
#PBS -l select=1:ncpus=1:ngpus=1
#PBS -j oe

case ${1:-} in
--help) sed -n '2,/^case /{/^#PBS/d;/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
--dry-run) echo "would run in ${PBS_O_WORKDIR:-$PWD}: hetckpt job -- ${program:-PROGRAM}" && exit ;;
esac

cd "${PBS_O_WORKDIR:?is set in jobs of PBS}" || exit
read -ra words <<<"${program:?is the program and its arguments: qsub -v program=...}"
# PBS keeps a job's output in a file of the node: a pipe is any run's own. The signals go to
# all processes.
exec > >(trap '' TERM USR1 && exec cat) 2>&1
exec hetckpt job -- "${words[@]}"
