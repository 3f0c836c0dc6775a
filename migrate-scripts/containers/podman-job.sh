#!/usr/bin/env bash
# A job in a rootless Podman container that is stored when it is preempted and goes on in a new container.
# `hetckpt job` runs inside. This script, outside, passes signals on and has Slurm queue the job again.
set -euo pipefail

usage() {
	cat <<-'EOF'
		usage: podman-job.sh [options] IMAGE -- CMD [ARG...]

		Runs `hetckpt job -- CMD` in a container of IMAGE, as the user who calls it. IMAGE is an image's name, or a folder
		with a root file system. If the job is stored, the exit code is 75, and a job of Slurm's is queued again.

		  --store DIR       folder for snapshots, which all nodes see (default hetckpt-snapshots)
		  --name NAME       name of the job in the store (default: of Slurm's job)
		  --hetckpt DIR     where hetckpt is installed (default: that of the hetckpt on PATH)
		  --criu DIR        where CRIU is installed with its libraries (default: lib/hetckpt/criu of hetckpt)
		  --bind DIR        folder that the container sees too, at the same path (the working folder always is)
		  --podman OPTION   another option for `podman run`, such as --podman --device=nvidia.com/gpu=all
		  --job OPTION      another option for `hetckpt job`, such as --job --every=30m
		  --dry-run         say what would be run
		  --help            this text

		--bind, --podman and --job may be given several times.
	EOF
}

die() {
	echo "podman-job: $1" >&2
	exit 2
}

store=hetckpt-snapshots name='' hetckpt='' criu='' dry_run=''
binds=("$PWD") podman_options=() job_options=()
while [ $# -gt 0 ]; do
	case $1 in
	--store | --name | --hetckpt | --criu | --bind | --podman | --job)
		[ $# -ge 2 ] || die "$1 needs a value"
		case $1 in
		--store) store=$2 ;;
		--name) name=$2 ;;
		--hetckpt) hetckpt=$2 ;;
		--criu) criu=$2 ;;
		--bind) binds+=("$2") ;;
		--podman) podman_options+=("$2") ;;
		--job) job_options+=("$2") ;;
		esac
		shift 2
		;;
	--dry-run) dry_run=1 && shift ;;
	--help) usage && exit 0 ;;
	--) break ;;
	-*) die "unknown option $1 (--help lists them)" ;;
	*) [ -z "${image:-}" ] || die "\`--\` is missing before $1" && image=$1 && shift ;;
	esac
done
if [ -z "${image:-}" ] || [ $# -lt 2 ]; then die 'an image and a command are needed (--help)'; fi
shift

if [ -n "${SLURM_JOB_ID:-}" ]; then
	slurm_job=$SLURM_JOB_ID
	[ -z "${SLURM_ARRAY_TASK_ID:-}" ] || slurm_job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
	name=${name:-${SLURM_CLUSTER_NAME:-slurm}-$slurm_job}
fi
[ -n "$name" ] || die 'the job needs a name (--name)'
if [ -z "$hetckpt" ]; then
	program=$(command -v hetckpt) || die 'hetckpt is not on PATH (--hetckpt)'
	hetckpt=$(dirname "$(dirname "$(realpath "$program")")")
fi
criu=${criu:-$hetckpt/lib/hetckpt/criu}
[ -x "$criu/bin/criu" ] || die "$criu/bin/criu is missing (--criu)"
[ -n "$dry_run" ] || mkdir -p "$store"
binds+=("$(realpath -m "$store")")

command=(podman run --rm --network=host)
# The user keeps the user number. CRIU cannot suspend a seccomp filter without root. A job's namespaces need a /proc of
# their own, which Linux refuses while parts of the container's /proc are masked.
command+=(--userns=keep-id --security-opt seccomp=unconfined --security-opt unmask=ALL)
command+=(-v "$hetckpt:$hetckpt:ro" -v "$criu:$criu:ro")
for folder in "${binds[@]}"; do command+=(-v "$folder:$folder"); done
command+=(-w "$PWD" -e 'SLURM_*' -e 'HETCKPT_*' -e 'CUDA_VISIBLE_DEVICES' -e "HETCKPT_CRIU=$criu/bin/criu")
command+=(${podman_options[@]+"${podman_options[@]}"})
# A folder may be in use by several jobs, so it is read-only; `/tmp`, `/var/tmp` and `/run` are not. An overlay (`:O`)
# would do too, but not with its upper half in another file system, as Podman has it by default: CRIU without root then
# does not find the files again that processes have mapped.
if [ -d "$image" ]; then
	image=$(realpath "$image")
	for folder in "$hetckpt" "$criu" "${binds[@]}" "$PWD"; do
		[ -n "$dry_run" ] || mkdir -p "$image$folder" || die "make $folder in $image: a folder is mounted there"
	done
	command+=(--read-only --rootfs "$image")
else
	command+=("$image")
fi
# Inside there is no Slurm to be asked, nor to pass signals on by a step beside the job.
command+=("$hetckpt/bin/hetckpt" job --no-sentinel --name "$name" --store "$(realpath -m "$store")")
command+=(${job_options[@]+"${job_options[@]}"} -- "$@")

if [ -n "$dry_run" ]; then
	printf '%q ' "${command[@]}" && echo
	exit 0
fi

# Podman's folder for what runs on this node. Batch jobs often have none, or the name of one that is not there.
export XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-/tmp/podman-run-$UID}
[ -d "$XDG_RUNTIME_DIR" ] || mkdir -m 700 "$XDG_RUNTIME_DIR"
# A user's first podman on a node starts another process of its own, and signals do not get through. So that is not the
# one with the job.
podman ps --quiet >/dev/null
come=''
trap 'come=TERM' TERM
trap 'come=USR1' USR1
"${command[@]}" &
podman=$!
while :; do
	code=0
	wait "$podman" || code=$?
	[ -n "$come" ] || break
	kill -s "$come" "$podman" 2>/dev/null || true
	come=''
done
[ "$code" = 75 ] || exit "$code"
# A job that is not running for Slurm any more was cancelled, or queued again by Slurm.
if [ -n "${slurm_job:-}" ] && [ "$(squeue -h -j "$slurm_job" -o %T 2>/dev/null)" = RUNNING ]; then
	scontrol requeue "$slurm_job"
fi
exit 75
