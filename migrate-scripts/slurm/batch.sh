#!/bin/bash
# A batch job that survives preemption: it is stored when another job takes its place, and goes on when it runs again.
#
#   sbatch [OPTIONS] batch.sh [--dry-run] PROGRAM ARGUMENT...
#
# Set HETCKPT_STORE to a folder that all nodes see. Without it, snapshots lie in hetckpt-snapshots where the job was submitted.
#
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
#SBATCH --gres=gpu:1
#SBATCH --comment=hetckpt

case ${1:---help} in
--help) sed -n '2,/^case /{/^#SBATCH/d;/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
--dry-run) shift && echo "would run: hetckpt job -- $*" && exit ;;
esac

# `exec`: Slurm signals the process that it has started.
exec hetckpt job -- "$@"
