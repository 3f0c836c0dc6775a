#!/bin/bash
# A batch job that does something before and after the program, which is a step.
#
#   sbatch [OPTIONS] step.sh [--dry-run] PROGRAM ARGUMENT...
#
# What the script does besides the step is done again in each run of the job. Slurm signals steps at the beginning of the grace
# time, so no --signal is needed. One step, one task: a snapshot is of one process tree.
#
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --gres=gpu:1
#SBATCH --comment=hetckpt

case ${1:---help} in
--help) sed -n '2,/^case /{/^#SBATCH/d;/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
--dry-run) shift && echo "would run: srun --ntasks=1 hetckpt job -- $*" && exit ;;
esac

echo "run ${SLURM_RESTART_COUNT:-0} on $SLURMD_NODENAME begins"
srun --ntasks=1 hetckpt job -- "$@"
status=$?
echo "run ${SLURM_RESTART_COUNT:-0} ends with status $status"
exit $status
