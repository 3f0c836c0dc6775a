#!/bin/bash
# Shows a job that is preempted on one node and goes on on another: the steps of README.md, on a Slurm cluster of two nodes that
# this script starts on this machine and removes again (e2e/slurm/two-nodes.sh). Needs root and Slurm's packages; takes half a
# minute.
#
#   try-it.sh [--dry-run] [--keep]
#
#   --dry-run   say what would be done
#   --keep      leave the cluster running, and say how to use it
#
# From the environment:
#   HETCKPT             hetckpt, as `make build` or `make install` leaves it (target/stage/bin/hetckpt)
#   HETCKPT_PROGRAMS    folder of the test programs (target/e2e/programs)
#   HETCKPT_CRIU        CRIU (~/.cache/hetckpt/criu/bin/criu)
#   TRY_GRACE           GraceTime of the partition, seconds (20)
#   CLUSTER_FOLDER      folder of the cluster, which is made (a new one below /tmp)
#   CLUSTER_PORT        the first of three ports (17200)
set -euo pipefail

die() { echo "try-it: $*" >&2; exit 1; }

keep='' dry_run=''
for argument in "$@"; do
	case $argument in
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	--keep) keep=1 ;;
	--dry-run) dry_run=1 ;;
	*) echo "try-it: unknown argument $argument (see --help)" >&2 && exit 2 ;;
	esac
done

here=$(dirname "$(realpath "$0")")
root=$(realpath "$here/../..")
hetckpt=$(realpath "${HETCKPT:-$root/target/stage/bin/hetckpt}")
program=$(realpath "${HETCKPT_PROGRAMS:-$root/target/e2e/programs}")/paced
criu=${HETCKPT_CRIU:-$HOME/.cache/hetckpt/criu/bin/criu}
# Hours of work, unless the program is told to come to its end.
work=(--iterations 20000000)

if [ -n "$dry_run" ]; then
	echo "would start a Slurm cluster of two nodes, submit batch.sh with $program, take its node for a job of higher"
	echo 'priority, wait until the first job goes on on the other node, and let it come to its end'
	exit
fi
[ "$(id -u)" = 0 ] || die 'run it as root: nodes are namespaces here'
for file in "$hetckpt" "$program" "$criu"; do [ -x "$file" ] || die "$file is missing: \`make build programs\`"; done
command -v slurmctld sbatch munged >/dev/null || die 'Slurm is missing: e2e/setup/install-slurm.sh'

export CLUSTER_FOLDER=${CLUSTER_FOLDER:-$(mktemp -d /tmp/hetckpt-try.XXXXXX)/cluster}
export CLUSTER_PORT=${CLUSTER_PORT:-17200} CLUSTER_GRACE=${TRY_GRACE:-20}
cluster=$root/e2e/slurm/two-nodes.sh
# What all nodes see.
shared=$CLUSTER_FOLDER.shared
mkdir -p "$shared"
chmod 755 "$(dirname "$CLUSTER_FOLDER")"

# shellcheck disable=SC2317,SC2329
clean() {
	"$cluster" down || true
	rm -rf -- "$shared"
	rmdir -- "$(dirname "$CLUSTER_FOLDER")" 2>/dev/null || true
}
[ -n "$keep" ] || trap clean EXIT

begun=$EPOCHREALTIME
tell() {
	local now=$EPOCHREALTIME
	# Microseconds; the decimal sign depends on the language.
	local passed=$((${now/[.,]/} - ${begun/[.,]/}))
	printf '[%3d.%d s] %s\n' $((passed / 1000000)) $((passed / 100000 % 10)) "$*"
}
field() { scontrol --oneliner show job "$job" | tr ' ' '\n' | sed -n "s/^$1=//p"; }
said() { grep -qs -- "$1" "$output"; }
# Waits until a command succeeds.
await() {
	local what=$1
	shift
	for _ in $(seq 600); do
		! "$@" || return 0
		sleep 0.1
	done
	cat "$output" >&2
	scontrol show job "$job" >&2
	die "waited in vain: $what"
}
runs_again() { [ "$(field JobState) $(field Restarts)" = 'RUNNING 1' ]; }
runs() { [ "$(field JobState)" = RUNNING ]; }
is_over() { [[ $(field JobState) != @(RUNNING|PENDING|COMPLETING) ]]; }
kernel_runs() { "$hetckpt" ps --json | tr -d ' \n' | grep -q "\"command\":\"${program}[^}]*\"running_kernels\":[1-9]"; }

tell 'a cluster: nodes n1 (GPU type nvidia) and n2 (type cpu), partition low is preempted by partition high'
"$cluster" up
export SLURM_CONF=$CLUSTER_FOLDER/etc/slurm.conf
tell 'the site: task_prolog.sh chooses the device by the type of GPU, cli_filter.lua adds the options that jobs need'
install -D "$here/task_prolog.sh" "$CLUSTER_FOLDER/lib/task_prolog.sh"
echo "TaskProlog=$CLUSTER_FOLDER/lib/task_prolog.sh" >>"$SLURM_CONF"
if compgen -G '/usr/lib*/*/slurm*/cli_filter_lua.so' >/dev/null || compgen -G '/usr/lib*/slurm*/cli_filter_lua.so' >/dev/null; then
	cp "$here/cli_filter.lua" "$CLUSTER_FOLDER/etc/"
	echo CliFilterPlugins=lua >>"$SLURM_CONF"
fi
scontrol reconfigure

export PATH=${hetckpt%/*}:$PATH HETCKPT_CRIU=$criu HETCKPT_STORE=$shared/store
cd "$shared"
tell "\$ sbatch --partition=low --exclusive --constraint='nvidia|cpu' batch.sh paced ${work[*]}"
job=$(sbatch --parsable --partition=low --exclusive --constraint='nvidia|cpu' --output="$shared/%j.out" \
	"$here/batch.sh" "$program" "${work[@]}")
output=$shared/$job.out
await 'the job starts' runs
node=$(field NodeList)
await "the program's kernel runs" kernel_runs
tell "job $job runs on $node, in the middle of its only kernel"

rival=$(sbatch --parsable --partition=high --nodelist="$node" --exclusive --output=/dev/null --chdir=/tmp --wrap='sleep 600')
tell "\$ sbatch --partition=high --nodelist=$node …: job $rival wants $node, so job $job is preempted"
await 'the job is stored' said '^hetckpt: snapshot .* in '
tell "job $job is stored: $(sed -n 's/^hetckpt: snapshot .*: \(.* in .*\)$/\1/p' "$output")"
await 'the job runs again' runs_again
tell "job $job runs again, on $(field NodeList)"
await 'the program goes on' said 'goes on from the snapshot of .*device'
await "the program's kernel runs" kernel_runs
tell 'the program goes on in the middle of its kernel'

for process in $(pgrep -x paced); do
	[ "$(readlink "/proc/$process/cwd")" != "$shared" ] || kill -USR1 "$process"
done
await 'the job ends' is_over
tell "job $job has ended: $(field JobState), exit code $(field ExitCode), $(field Restarts) restart"
tell 'what the job has printed:'
sed "s|$shared/||; s/^/    /" "$output"
if [ "$(field JobState)" != COMPLETED ] || ! said PASS; then die 'the result is wrong'; fi
if [ -n "$keep" ]; then
	echo "left running: \`export SLURM_CONF=$SLURM_CONF\`; to end it: \`CLUSTER_FOLDER=$CLUSTER_FOLDER $cluster down\`"
fi
