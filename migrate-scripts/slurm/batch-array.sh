#!/bin/bash
# An array of jobs, each stored and gone on with by itself.
#
#   sbatch [OPTIONS] batch-array.sh [--dry-run] PROGRAM ARGUMENT...
#
# The program gets the task's number as its last argument. Each task has snapshots of its own. Output files must be told apart
# too (%A: the array, %a: the task).
#
#SBATCH --array=0-3
#SBATCH --output=%x-%A_%a.out
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
#SBATCH --gres=gpu:1
#SBATCH --comment=hetckpt

case ${1:---help} in
--help) sed -n '2,/^case /{/^#SBATCH/d;/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
--dry-run) shift && echo "would run: hetckpt job -- $* ${SLURM_ARRAY_TASK_ID:-TASK}" && exit ;;
esac

exec hetckpt job -- "$@" "${SLURM_ARRAY_TASK_ID:?is set in tasks of an array}"
