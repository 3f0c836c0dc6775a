#!/bin/bash
# Slurm's TaskProlog: chooses the device of `hetckpt job` by the type of the GPU that the node has for Slurm.
#
#   TaskProlog=/usr/local/lib/hetckpt/slurm/task_prolog.sh     in slurm.conf
#   task_prolog.sh --dry-run NODE                              shows what it says for jobs with a GPU of NODE
#
# Slurm adds what this prints as `export NAME=VALUE` to the environment of each task, batch scripts included. A HETCKPT_DEVICE
# that the job already has stays. The types are those of gres.conf: cpu stands for nodes where programs run on the CPU.

node=${SLURMD_NODENAME:-} has_gpu=${SLURM_GPUS_ON_NODE:-0}
case ${1:-} in
--help) sed -n '2,/^$/{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
--dry-run) node=${2:?is a node} has_gpu=1 HETCKPT_DEVICE='' ;;
esac
[ -z "${HETCKPT_DEVICE:-}" ] || exit 0

device=cpu
if [ "$has_gpu" != 0 ]; then
	# `gpu:nvidia:1(S:0)`, or `gpu:1` without a type; a line for each partition of the node.
	read -r gres < <(sinfo --noheader --Node --nodes="$node" --format=%G 2>/dev/null)
	case ${gres:-} in
	*gpu:cpu:*) device=cpu ;;
	# The GPU of the job, and if it fails another one of the node or the CPU.
	*gpu:nvidia* | *gpu:[ahv][0-9]* | *gpu:l[0-9]* | *gpu:tesla* | *gpu:rtx*) device=auto ;;
	*gpu:amd* | *gpu:mi[0-9]* | *gpu:intel*) device=opencl ;;
	*) device=auto ;;
	esac
fi
echo "export HETCKPT_DEVICE=$device"
