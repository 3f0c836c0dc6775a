#!/bin/bash
# The story in one go: a CUDA program is stopped in the middle of its only kernel, stored in a file, proven gone, and
# finished from that file; where a GPU is present it starts there, goes on on the CPU, and ends on the GPU.
#
#   demo.sh [--seconds N] [--dry-run]
#
#   --seconds N   length of the kernel on this machine's device (30)
#   --dry-run     say what would be done
#
# `make demo` builds what it needs. HETCKPT_STAGE, HETCKPT_PROGRAMS and HETCKPT_CRIU name other places for it.
set -euo pipefail

seconds=30 dry_run=
while [ $# -gt 0 ]; do
	case $1 in
	--seconds) seconds=${2:?} && shift ;;
	--dry-run) dry_run=1 ;;
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	*) echo "demo: unknown argument $1 (see --help)" >&2 && exit 2 ;;
	esac
	shift
done

root=$(dirname "$(dirname "$(realpath "$0")")")
hetckpt=${HETCKPT_STAGE:-$root/target/stage}/bin/hetckpt
program=${HETCKPT_PROGRAMS:-$root/target/e2e/programs}/spin
export HETCKPT_CRIU=${HETCKPT_CRIU:-$HOME/.cache/hetckpt/criu/bin/criu}

bold='' plain=''
[ ! -t 1 ] || bold=$'\e[1m' plain=$'\e[0m'
tell() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
die() { echo "demo: $*" >&2; exit 1; }
exec 3>&1
# Shows a command line and becomes that command (so: in a subshell, or in the background).
show() { echo "\$ ${*/#$hetckpt/hetckpt}" >&3 && exec "$@" 3>&-; }
number() { sed -n "s/.*\"$2\": *\([0-9][0-9.e-]*\).*/\1/p" "$1" | head -n 1; }

if [ -n "$dry_run" ]; then
	echo "would run $program for about $seconds s, dump it, restore it, compare"
	exit
fi
if [ ! -x "$hetckpt" ] || [ ! -x "$program" ]; then die "nothing is built yet: use \`make demo\`"; fi
[ "$(id -u)" = 0 ] || die "CRIU needs root: run this as root"

work=$(mktemp -d)
export HETCKPT_RUNTIME_DIR=$work/run
supervisor=
cleanup() {
	[ -z "$supervisor" ] || kill "$supervisor" 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT

# Where it starts and where it goes on.
if "$hetckpt" devices --json | grep -q '"cuda:0"'; then
	route=(cuda cpu cuda)
else
	route=(cpu cpu)
fi

# How long a run of the given length takes here, in milliseconds, in a kernel that lasts.
run_ms() {
	local from to
	from=$(date +%s%N)
	"$hetckpt" run --device "$1" -- "$program" --blocks "$2" --iterations "$3" >"$work/calibration"
	to=$(date +%s%N)
	echo $(((to - from) / 1000000))
}

tell "hetckpt demo: ${route[*]}"
"$hetckpt" devices

tell "1. How fast is this machine? Running the program for a moment, to know what $seconds s of work are."
# As many blocks as the CPU has to take in turn: some finish, some are caught inside, some never start.
blocks=64 iterations=1000000
run_ms "${route[0]}" $blocks $iterations >"$work/first" # also translates the kernel
base=$(run_ms "${route[0]}" $blocks 1)
while took=$(run_ms "${route[0]}" $blocks $iterations) && ((took - base < 700)); do
	iterations=$((iterations * 4))
done
iterations=$((iterations * seconds * 1000 / (took - base)))
arguments=(--blocks "$blocks" --iterations "$iterations")

tell "2. The program, undisturbed: one kernel, about $seconds s on ${route[0]}."
time_start=$(date +%s)
show "$hetckpt" run --device "${route[0]}" -- "$program" "${arguments[@]}" | tee "$work/expected"
echo "(took $(($(date +%s) - time_start)) s)"

tell "3. The same again, but this time it is going to be interrupted."
show "$hetckpt" run --device "${route[0]}" --pid-file "$work/pid" -- "$program" "${arguments[@]}" --progress \
	>"$work/out" 2>"$work/err" &
supervisor=$!
until grep -q launched "$work/err" 2>/dev/null; do sleep 0.05; done
pid=$(cat "$work/pid")
for ((stop = 1; stop < ${#route[@]}; stop++)); do
	from=${route[stop - 1]} to=${route[stop]}
	sleep $((seconds / (${#route[@]} + 1)))
	"$hetckpt" ps
	"$hetckpt" ps --json >"$work/ps"
	server=$(number "$work/ps" server_pid)

	tell "4.$stop Dump it, right inside its kernel on $from."
	archive=$work/job-$stop.hetsnap
	(show "$hetckpt" dump --pid "$pid" -o "$archive" --json >"$work/dump-$stop.json")
	wait "$supervisor" || true
	supervisor=
	(show "$hetckpt" inspect "$archive")

	tell "5.$stop Proof that it is gone: process $pid, and its device server $server."
	for gone in "$pid" "$server"; do
		# A zombie has ended; it is a line in a table until its parent takes notice.
		! grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$gone/status" || die "process $gone still runs"
	done
	[ "$("$hetckpt" ps --json)" = "[]" ] || die "\`hetckpt ps\` still lists a program"
	echo "neither process runs; \`hetckpt ps\` is empty"

	tell "6.$stop Restore it from the file, on $to."
	show "$hetckpt" restore "$archive" --device "$to" --timings "$work/restore-$stop.json" >>"$work/out" 2>>"$work/err" &
	supervisor=$!
	until [ -s "$work/restore-$stop.json" ]; do
		kill -0 "$supervisor" 2>/dev/null || { cat "$work/err" >&2 && die "the restore failed"; }
		sleep 0.02
	done
	"$hetckpt" ps
done
wait "$supervisor" || { cat "$work/err" >&2 && die "the restored program failed"; }
supervisor=

tell "7. Undisturbed, and interrupted:"
cat "$work/expected" "$work/out"
cmp -s "$work/expected" "$work/out" || die "the results differ"
echo "the same, to the byte"

tell "8. What it took, in milliseconds:"
printf '%-14s %8s %8s %10s %8s %8s\n' move pause capture 'CRIU dump' archive restore
for ((stop = 1; stop < ${#route[@]}; stop++)); do
	times=()
	for step in pause capture criu archive; do times+=("$(number "$work/dump-$stop.json" $step)"); done
	times+=("$(number "$work/restore-$stop.json" total)")
	echo "${route[stop - 1]}->${route[stop]} ${times[*]}" | awk '{
		printf "%-14s %8.2f %8.1f %10.1f %8.1f %8.1f\n", $1, $2 * 1e3, $3 * 1e3, $4 * 1e3, $5 * 1e3, $6 * 1e3 }'
done
