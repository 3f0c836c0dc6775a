#!/bin/bash
# Tests of the scripts here. For each scheduler, what it does to a job is played: its variables, its signals, its hooks. The job
# is stored, and its second run must come to the right result. Under Slurm that is done for real, on a cluster of two nodes, if
# Slurm is installed and this is root.
#
#   test.sh [--dry-run] [FOLDER...]        (default: all folders)
#
# From the environment:
#   HETCKPT             hetckpt (target/stage-dev/bin/hetckpt)
#   HETCKPT_PROGRAMS    folder of the test programs (target/e2e/programs)
#   HETCKPT_CRIU        CRIU (~/.cache/hetckpt/criu/bin/criu)
#   PYTHON              a Python for the manifests' syntax; with kubernetes-validate, for their schema too (python3)
set -euo pipefail

here=$(dirname "$(realpath "$0")")
root=$(realpath "$here/..")
all=(slurm kubernetes htcondor pbs lsf flux)

dry_run='' folders=()
for argument in "$@"; do
	case $argument in
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	--dry-run) dry_run=1 ;;
	-*) echo "test.sh: unknown option $argument (see --help)" >&2 && exit 2 ;;
	*) folders+=("${argument%/}") ;;
	esac
done
[ ${#folders[@]} != 0 ] || folders=("${all[@]}")
for folder in "${folders[@]}"; do
	[[ " ${all[*]} " == *" $folder "* ]] || { echo "test.sh: there are no tests of $folder" >&2 && exit 2; }
done
if [ -n "$dry_run" ]; then
	echo "would test ${folders[*]}"
	exit
fi

HETCKPT=$(realpath "${HETCKPT:-$root/target/stage-dev/bin/hetckpt}")
HETCKPT_PROGRAMS=$(realpath "${HETCKPT_PROGRAMS:-$root/target/e2e/programs}")
export HETCKPT HETCKPT_PROGRAMS HETCKPT_CRIU=${HETCKPT_CRIU:-${HETCKPT_CACHE:-$HOME/.cache/hetckpt}/criu/bin/criu}
for file in "$HETCKPT" "$HETCKPT_PROGRAMS/paced" "$HETCKPT_CRIU"; do
	[ -x "$file" ] || { echo "test.sh: $file is missing: \`make built programs\`" >&2 && exit 1; }
done

# The program sleeps for minutes, unless SIGUSR1 tells it that enough has been seen.
program=("$HETCKPT_PROGRAMS/paced" --iterations 3000000)
top=$(mktemp -d /var/tmp/hetckpt-scripts.XXXXXX)
top_pid=$BASHPID
work=$top job='' num_failed=0 digest=''

# The processes that are left of a test: all that work below its folder.
end_all() {
	local process
	for process in /proc/[0-9]*; do
		[[ $(readlink "$process/cwd" 2>/dev/null) != "$top"/* || ${process#/proc/} = "$BASHPID" || ${process#/proc/} = "$top_pid" ]] ||
			kill -9 "${process#/proc/}" 2>/dev/null || true
	done
}
trap 'cd /; end_all; rm -rf -- "$top"' EXIT

fail() {
	echo "  failed: $*" >&2
	sed 's/^/    /' "$work"/*.out "$work"/log >&2 2>/dev/null || true
	exit 1
}
# What is printed by way of a pipe may come a little later.
has() {
	for _ in $(seq 30); do
		! grep -qs -e "$2" -- "$work/$1" || return 0
		sleep 0.1
	done
	fail "\`$2\` is not in $1"
}
await() { # WHAT COMMAND...
	local what=$1
	shift
	for _ in $(seq 300); do
		! "$@" || return 0
		sleep 0.1
	done
	fail "waited in vain until $what"
}

# Runs a command in the background with the environment of a scheduler's job: VARIABLE=VALUE... COMMAND...
start() {
	env -i PATH="${HETCKPT%/*}:$PATH" HOME="$work" HETCKPT_CRIU="$HETCKPT_CRIU" HETCKPT_DEVICE=cpu \
		HETCKPT_STORE="$work/store" HETCKPT_RUNTIME_DIR="$work/run" LANG=C "$@" &
	job=$!
}
# `job` ends with that code.
ends_with() {
	local code=0
	wait "$job" || code=$?
	[ "$code" = "$1" ] || fail "it ended with status $code, and not $1"
}
# Process ids of the test program, as this sees them.
programs() {
	local process
	for process in $(pgrep -x paced); do
		! tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" | grep -qxs "HOME=$work" || echo "$process"
	done
}
# True if the program catches SIGUSR1, which it does once it is at work, and is no process that CRIU is building.
is_at_work() {
	local process caught
	process=$(programs | head -n 1)
	[[ -n $process && $(readlink "/proc/$process/exe" 2>/dev/null) = */paced ]] || return 1
	caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$process/status" 2>/dev/null)
	[ -n "$caught" ] && [ $((16#$caught >> 9 & 1)) = 1 ]
}
await_work() {
	await 'the program is at work' is_at_work
	sleep 0.5
}
hurry() {
	local process
	for process in $(programs); do kill -USR1 "$process"; done
}
is_right() { has "$1" "$digest"; }

# What is right: the program's result if nobody interrupts it.
work=$top/expected && mkdir "$work" && cd "$work"
start "$HETCKPT" run "${program[@]}" >log
await_work
hurry
ends_with 0
digest=$(grep -o 'digest .* PASS' log) || fail 'the program does not come to its end'

test_slurm() {
	local stub=$work/bin
	# The device of a node, by what Slurm says of it.
	mkdir "$stub"
	printf '#!/bin/sh\nprintenv GRES\n' >"$stub/sinfo" && chmod +x "$stub/sinfo"
	device() { env -u HETCKPT_DEVICE PATH="$stub:$PATH" GRES="$1" SLURMD_NODENAME=n SLURM_GPUS_ON_NODE="$2" "$here/slurm/task_prolog.sh"; }
	for case in 'gpu:nvidia:1(S:0) 1 auto' 'gpu:a100:4 1 auto' 'gpu:amd:1 1 opencl' 'gpu:cpu:1 1 cpu' 'gpu:1 1 auto' '(null) 0 cpu'; do
		read -r gres num_gpus expected <<<"$case"
		[ "$(device "$gres" "$num_gpus")" = "export HETCKPT_DEVICE=$expected" ] || fail "the device is wrong for $case"
	done
	[ -z "$(HETCKPT_DEVICE=cuda:1 "$here/slurm/task_prolog.sh")" ] || fail 'the device that the job has does not stay'
	for template in batch batch-array step; do
		"$here/slurm/$template.sh" --dry-run ./a b | grep -q 'hetckpt job -- ./a b' || fail "$template.sh does not say what it would do"
	done
	# What is left when `hetckpt job` is killed, where Slurm tracks processes by their parents.
	start SLURM_JOB_ID=77777 hetckpt job --scheduler none --name epilog -- "${program[@]}" >log 2>&1
	await_work
	kill -9 "$job"
	wait "$job" 2>/dev/null || true
	SLURM_JOB_ID=7777 SLURM_JOB_UID=$(id -u) "$here/slurm/epilog.sh"
	[ -n "$(programs)" ] || fail 'the epilog has ended a program of another job'
	SLURM_JOB_ID=77777 SLURM_JOB_UID=$(id -u) "$here/slurm/epilog.sh"
	# shellcheck disable=SC2317,SC2329
	is_ended() { [ -z "$(programs)" ]; }
	await 'nothing is left of the job' is_ended
	if [ "$(id -u)" != 0 ] || ! command -v slurmctld sbatch munged >/dev/null; then
		echo '  only in part: there is no Slurm here, or this is not root'
		return
	fi
	CLUSTER_PORT=$((17200 + RANDOM % 400 * 3)) TMPDIR=$work "$here/slurm/try-it.sh" >log 2>&1 || fail 'try-it.sh'
	has log 'goes on from the snapshot'
	has log COMPLETED
}

# A pod: process ids of its own, whose first gets SIGTERM, and pipes that are other ones in each run.
test_kubernetes() {
	"${PYTHON:-python3}" "$here/kubernetes/check.py" "$here"/kubernetes/*.yaml || fail 'the manifests are wrong'
	local pod=(KUBERNETES_SERVICE_HOST=10.0.0.1 HETCKPT_JOB_NAME=train JOB_COMPLETION_INDEX=0 HETCKPT_GRACE=30
		unshare --pid --fork --mount-proc)
	# As in pods with `hostUsers: false` and a user other than root.
	[ "$(id -u)" = 0 ] || pod+=(--user --map-root-user unshare --user --map-user=1000 --map-group=1000)
	first_of_pod() { pgrep -P "$job"; }
	start "${pod[@]}" hetckpt job -- "${program[@]}" > >(cat >first.out) 2>&1
	await_work
	kill -TERM "$(first_of_pod)"
	ends_with 75
	has first.out 'exit code 75'
	start "${pod[@]}" hetckpt job -- "${program[@]}" > >(cat >second.out) 2>&1
	await_work
	hurry
	ends_with 0
	is_right second.out
	# A node that fails: there is no signal, and snapshots were taken before.
	start "${pod[@]}" hetckpt job --name other --every 1s -- "${program[@]}" > >(cat >third.out) 2>&1
	await 'there is a snapshot' grep -qs 'hetckpt: snapshot' third.out
	kill -9 "$(first_of_pod)"
	wait "$job" || true
	# Nobody says that the first pod is gone, so the next ones of this minute fail: the Job's backoff is for that.
	start "${pod[@]}" hetckpt job --name other -- "${program[@]}" > >(cat >fourth.out) 2>&1
	ends_with 125
	has fourth.out HK0710
}

# Vacated: SIGTERM to the job's process. The next run has another folder and other files for output.
test_htcondor() {
	printf 'GlobalJobId = "host#12.3#1700000000"\nNumShadowStarts = 1\nSuccessCheckpointExitCode = 85\n' >job.ad
	echo 'MachineMaxVacateTime = 600' >machine.ad
	condor() { # RUN VARIABLE=VALUE...
		local scratch=$work/execute/dir_$RANDOM$1 run=$1
		shift
		mkdir -p "$scratch" && cd "$scratch"
		start _CONDOR_JOB_AD="$work/job.ad" _CONDOR_MACHINE_AD="$work/machine.ad" _CONDOR_SCRATCH_DIR="$scratch" "$@" \
			"$here/htcondor/job.sh" "${program[@]}" >"$work/$run.out" 2>"$work/$run.err.out"
		cd "$work"
	}
	condor first HETCKPT_WORK=/mnt
	await_work
	kill -TERM "$job"
	ends_with 85
	sed -i 's/^NumShadowStarts = .*/NumShadowStarts = 2/' job.ad
	condor second HETCKPT_WORK=/mnt
	await_work
	hurry
	ends_with 0
	is_right second.out
}

# The session of the job's task, and MoM's two actions.
test_pbs() {
	local variables=(PBS_JOBID=12.server PBS_O_WORKDIR="$work" program="${program[*]}")
	mkdir spool checkpoint
	# Preempted by requeueing: SIGTERM to all processes of the session.
	start "${variables[@]}" setsid "$here/pbs/job.sh" >first.out 2>&1
	await_work
	local session=$job
	pkill -TERM --session "$session"
	ends_with 75
	has first.out 'PBS queues the job again'
	start "${variables[@]}" setsid "$here/pbs/job.sh" >second.out 2>&1
	await_work
	# Preempted by checkpointing.
	session=$job
	env -i PATH="$PATH" PBS_JOBID=12.server PBS_SID="$session" \
		"$here/pbs/checkpoint.sh" 12.server "$session" "$work/checkpoint/12.server.CK" <&- >&- 2>&- || fail checkpoint.sh
	ends_with 75
	# shellcheck disable=SC2317,SC2329
	is_empty() { ! pgrep --session "$session" >/dev/null; }
	await 'nothing is left of the session' is_empty
	env -i PATH="$PATH" PBS_HOME="$work" PBS_JOBID=12.server \
		setsid "$here/pbs/restart.sh" 12.server "$(id -un)" "$work/checkpoint/12.server.CK" <&- >&- 2>&- &
	job=$!
	await_work
	hurry
	ends_with 0
	is_right spool/12.server.OU
	! "$here/pbs/checkpoint.sh" 12.server "$session" "$work/checkpoint/none" 2>/dev/null || fail 'what does not run is stored'
}

# A queue that requeues by exit code; then LSF's own checkpoints, after which the job has another number.
test_lsf() {
	local words="${program[*]}"
	start LSB_JOBID=12 LSB_JOBINDEX=0 LSB_EXIT_REQUEUE=75 HETCKPT_PROGRAM="$words" setsid "$here/lsf/job.sh" >first.out 2>&1
	await_work
	kill -USR1 -- "-$job"
	ends_with 75
	start LSB_JOBID=12 LSB_JOBINDEX=0 LSB_EXIT_REQUEUE=75 LSB_RESTART=Y HETCKPT_PROGRAM="$words" "$here/lsf/job.sh" >second.out 2>&1
	await_work
	hurry
	ends_with 0
	is_right second.out
	local folder=$work/checkpoints/13
	mkdir -p "$folder"
	start LSB_JOBID=13 LSB_JOBINDEX=0 HETCKPT_PROGRAM="$words" setsid "$here/lsf/checkpointed.sh" >third.out 2>&1
	await_work
	local group=$job
	! "$here/lsf/echkpnt.hetckpt" -d "$folder" "$group" 2>/dev/null || fail 'a checkpoint of a job that runs on is no error'
	LSB_JOBID=13 "$here/lsf/echkpnt.hetckpt" -k -d "$folder" "$group" || fail echkpnt.hetckpt
	ends_with 75
	mv "$folder" "$work/checkpoints/14"
	folder=$work/checkpoints/14
	LSB_JOBID=14 LSB_RESTART=Y "$here/lsf/erestart.hetckpt" "$folder" || fail erestart.hetckpt
	local command
	command=$(sed -n 's/^LSB_RESTART_CMD=//p' "$folder/.restart_cmd")
	start LSB_JOBID=14 LSB_JOBINDEX=0 LSB_RESTART=Y sh -c "$command" >fourth.out 2>&1
	await_work
	hurry
	ends_with 0
	is_right fourth.out
}

# A stand-in for flux: it starts the script, and its `job status` gives the script's exit code.
test_flux() {
	mkdir bin
	cat >bin/flux <<-'END'
		#!/bin/bash
		case $1 in
		batch)
			number=$(($(cat number 2>/dev/null || echo 0) + 1))
			echo $number >number
			shift
			while [[ $1 = -* ]]; do shift; done
			(bash -c 'echo $$ >pid && exec "$@"' flux "$@" >"run$number.out" 2>&1; echo $? >"status$number") >/dev/null 2>&1 &
			echo "$number"
			;;
		job)
			while [ ! -s "status$3" ]; do sleep 0.1; done
			exit "$(cat "status$3")"
			;;
		esac
	END
	chmod +x bin/flux
	start PATH="$work/bin:${HETCKPT%/*}:$PATH" "$here/flux/resubmit.sh" --time-limit=8h "$here/flux/batch.sh" train "${program[@]}" \
		>log 2>&1
	await_work
	# Its time is up soon.
	kill -USR1 "$(cat pid)"
	await 'the job is submitted again' grep -qs 'submitted again' log
	await_work
	hurry
	ends_with 0
	is_right run2.out
}

one() { # FOLDER
	local begun=$SECONDS folder=$1
	work=$top/$folder
	mkdir "$work" && cd "$work"
	# `set -e` holds within.
	(set -e && "test_$folder") >said 2>&1 &
	if wait $!; then echo "  ok, $((SECONDS - begun)) s" >>said; else touch failed; fi
}

# Slurm takes its time, and the others wait more than they compute.
slurm=''
if [[ " ${folders[*]} " == *' slurm '* ]]; then
	one slurm &
	slurm=$!
fi
for folder in "${folders[@]}"; do
	[ "$folder" = slurm ] || (one "$folder")
done
[ -z "$slurm" ] || wait "$slurm"
for folder in "${folders[@]}"; do
	echo "$folder"
	cat "$top/$folder/said"
	[ ! -e "$top/$folder/failed" ] || num_failed=$((num_failed + 1))
done
[ $num_failed = 0 ] || { echo "test.sh: $num_failed of ${#folders[@]} failed" >&2 && exit 1; }
