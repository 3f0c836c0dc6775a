#!/bin/bash
# How long dumps and restores of a program with much device memory take on the CPU device, beside what they cannot do without (copies of
# as many bytes) and beside CRIU's of an ordinary process with as much memory.
#
#   data.sh [--dry-run] [--mib N] [--turns N] [--folder DIR]
#
#   --mib N       MiB of device memory, which does not compress (1024)
#   --turns N     medians of so many (5)
#   --folder DIR  where archives, images and copies go (TMPDIR)
#
# Takes target/stage, as `make build` leaves it, and memory_hog of `make programs`; run it as root. Prints a table.
set -euo pipefail

exec 3>&2
die() { echo "data: $*" >&3; exit 1; }

mib=1024 turns=5 folder=${TMPDIR:-/tmp} dry_run=''
while [ $# -gt 0 ]; do
	case $1 in
	--dry-run) dry_run=1 ;;
	--mib) mib=${2:?--mib needs a number} && shift ;;
	--turns) turns=${2:?--turns needs a number} && shift ;;
	--folder) folder=${2:?--folder needs a folder} && shift ;;
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	*) die "unknown argument $1 (see --help)" ;;
	esac
	shift
done
if [ -n "$dry_run" ]; then
	echo "would dump and restore $mib MiB in $folder, $turns turns"
	exit
fi
here=$(dirname "$(realpath "$0")")
target=${CARGO_TARGET_DIR:-$here/../../target}
hetckpt=${HETCKPT_STAGE:-$target/stage}/bin/hetckpt
program=${HETCKPT_PROGRAMS:-$target/e2e/programs}/memory_hog
export HETCKPT_CRIU=${HETCKPT_CRIU:-${HETCKPT_CACHE:-$HOME/.cache/hetckpt}/criu/bin/criu}
for needed in "$hetckpt" "$program" "$HETCKPT_CRIU"; do [ -x "$needed" ] || die "$needed is missing: \`make build programs\`"; done

work=$(mktemp -d -p "$folder")
running=''
end_program() { [ -z "$running" ] || { kill -9 "$running" 2>/dev/null || true; } && running=''; }
trap 'end_program; rm -rf "$work"' EXIT
export TMPDIR=$work
head -c $((mib << 20)) /dev/urandom >"$work/bytes"

note() { echo "$2" >>"$work/seconds.$1"; } # WHAT SECONDS
timed() { # WHAT COMMAND...
	local what=$1 begun=$EPOCHREALTIME ended
	shift
	"$@" >"$work/said" 2>&1 || die "$what failed: $(tail -n 5 "$work/said")"
	ended=$EPOCHREALTIME
	note "$what" "$(((${ended/[.,]/} - ${begun/[.,]/}) / 1000))"
}
wait_for() { # COMMAND...
	for _ in $(seq 1200); do
		"$@" >/dev/null 2>&1 && return
		sleep 0.1
	done
	die "waited too long for: $*"
}
all_gone() { wait || true; }
dump() { "$hetckpt" dump --json --pid "$running" -o "$@"; }
note_stop() { # WHAT, of the dump that was just timed
	note "$1" "$(python3 -c 'import json, sys; print(round(1000 * json.load(open(sys.argv[1]))["seconds"]["stopped"]))' "$work/said")"
}

of_ours() {
	rm -f "$work"/{pid,timings,err} "$work"/*.hetsnap
	"$hetckpt" run --device cpu --pid-file "$work/pid" -- "$program" --mib "$mib" --sleeps 1 --iterations 1000000 \
		>"$work/out" 2>"$work/err" &
	wait_for grep -q . "$work/pid"
	running=$(cat "$work/pid")
	wait_for sh -c "'$hetckpt' ps --json | grep -q '\"running_kernels\": *1'"
	timed dump dump "$work/first.hetsnap" --leave-running
	note_stop 'dump: stopped'
	timed 'dump --live' dump "$work/live.hetsnap" --leave-running --live
	note_stop 'dump --live: stopped'
	rm "$work/live.hetsnap"
	timed 'dump --parent' dump "$work/second.hetsnap" --parent "$work/first.hetsnap" --leave-running
	timed 'dump, end' dump "$work/last.hetsnap"
	all_gone
	"$hetckpt" restore --device cpu --timings "$work/timings" "$work/last.hetsnap" >"$work/out" 2>"$work/err" &
	wait_for grep -q total "$work/timings"
	note restore "$(python3 -c 'import json, sys; print(round(1000 * json.load(open(sys.argv[1]))["total"]))' "$work/timings")"
	end_program
	all_gone
	stat -c %s "$work/first.hetsnap" >"$work/whole" && stat -c %s "$work/second.hetsnap" >"$work/borrowing"
}

of_criu() {
	rm -rf "$work/images" && mkdir "$work/images"
	setsid python3 -c 'import os, sys, time
held = os.urandom(int(sys.argv[1]) << 20)
open(sys.argv[2], "w").write("ready")
time.sleep(1000000)' "$mib" "$work/ready" </dev/null >/dev/null 2>&1 &
	running=$!
	wait_for grep -q ready "$work/ready"
	rm "$work/ready"
	timed 'criu dump' "$HETCKPT_CRIU" dump -t "$running" -D "$work/images" -o dump.log
	all_gone
	timed 'criu restore' "$HETCKPT_CRIU" restore -d -D "$work/images" -o restore.log
	end_program
}

for _ in $(seq "$turns"); do
	timed cp cp "$work/bytes" "$work/copy" && rm "$work/copy"
	timed 'dd, fsync' dd if="$work/bytes" of="$work/copy" bs=4M conv=fsync && rm "$work/copy"
	of_ours
	# Bash remarks on what CRIU kills.
	of_criu 2>/dev/null
done
printf '%-20s %8s %8s %8s\n' "$mib MiB, ms" median least most
for what in cp 'dd, fsync' 'criu dump' dump 'dump: stopped' 'dump --live' 'dump --live: stopped' 'dump --parent' 'dump, end' \
	'criu restore' restore; do
	sort -n "$work/seconds.$what" | awk -v what="$what" '{ ms[NR] = $1 }
		END { printf "%-20s %8d %8d %8d\n", what, ms[int((NR + 1) / 2)], ms[1], ms[NR] }'
done
echo "archives: $(cat "$work/whole") bytes, with --parent $(cat "$work/borrowing")"
