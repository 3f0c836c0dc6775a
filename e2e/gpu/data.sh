#!/bin/bash
# How long it takes to suspend, resume, dump and restore a program with much device memory on a machine with an NVIDIA GPU, beside the
# driver's own checkpoint calls with CRIU, by turns.
#
#   data.sh [--dry-run] [--gib N] [--turns N] [--folder DIR]
#
#   --gib N       GiB of device memory, which does not compress (4)
#   --turns N     medians of so many (3)
#   --folder DIR  where archives and images go (/dev/shm)
#
# Works in the source tree after `make build programs`, or from a bundle (bundle.sh). Run it as root; it wants gcc.
# Prints a table of milliseconds; where OUT names a folder, JSON lines go to $OUT/data.jsonl.
set -euo pipefail

say() { echo "== $*"; }
die() { echo "data: $*" >&2; exit 1; }

gib=4 turns=3 folder=/dev/shm dry_run=''
while [ $# -gt 0 ]; do
	case $1 in
	--dry-run) dry_run=1 ;;
	--gib) gib=${2:?--gib needs a number} && shift ;;
	--turns) turns=${2:?--turns needs a number} && shift ;;
	--folder) folder=${2:?--folder needs a folder} && shift ;;
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	*) die "unknown argument $1 (see --help)" ;;
	esac
	shift
done
[ -z "$dry_run" ] || { echo "would measure $gib GiB in $folder, $turns turns"; exit; }

# shellcheck source=e2e/gpu/measuring.sh
. "$(dirname "$(realpath "$0")")/measuring.sh"
results=${OUT:+$OUT/data.jsonl}
program=$HETCKPT_PROGRAMS/memory_hog
data=$(mktemp -d -p "$folder")
running=''
end_program() { [ -z "$running" ] || { kill -9 "$running" 2>/dev/null || true; } && running=''; }
trap 'end_program; rm -rf "$work" "$data"' EXIT
gcc -O2 "$here/driver_checkpoint.c" -o "$work/driver_checkpoint" -ldl

note() { # WHAT MILLISECONDS
	echo "$2" >>"$work/ms.$1"
	echo "{\"what\": \"$1\", \"gib\": $gib, \"ms\": $2}" >>"${results:-/dev/null}"
}
timed() { # WHAT COMMAND...
	local what=$1 begun=$EPOCHREALTIME ended
	shift
	"$@" >"$work/said" 2>"$work/said.err" || die "$what failed: $(tail -n 5 "$work/said.err")"
	ended=$EPOCHREALTIME
	note "$what" "$(((${ended/[.,]/} - ${begun/[.,]/}) / 1000))"
}
ms_of() { python3 -c 'import json, sys; print(round(1000 * json.load(open(sys.argv[1]))[sys.argv[2]]))' "$1" "$2"; } # FILE FIELD
wait_for() { # COMMAND...
	for _ in $(seq 1200); do
		"$@" >/dev/null 2>&1 && return
		sleep 0.05
	done
	die "waited too long for: $*"
}
by_driver() { # WHAT VERB [PID]
	"$work/driver_checkpoint" "${@:2}" >"$work/said" || die "the driver's $2: $(cat "$work/said")"
	note "$1" "$(sed 's/.*"milliseconds": \([0-9]*\).*/\1/' "$work/said")"
}
dump() { # WHAT WORDS...: total and how long the program stood still
	timed "$1" "$hetckpt" dump --json --pid "$running" -o "$data/$1.hetsnap" "${@:2}"
	note "$1, stopped" "$(python3 -c 'import json, sys; print(round(1000 * json.load(open(sys.argv[1]))["seconds"]["stopped"]))' "$work/said")"
}

ours() {
	rm -f "$work/pid" "$work/timings"
	"$hetckpt" run --device cuda --pid-file "$work/pid" -- "$program" --gib "$gib" --sleeps 1 --iterations 2000000 --progress \
		>"$work/out" 2>"$work/err" &
	wait_for grep -q launched "$work/err"
	sleep 1
	running=$(cat "$work/pid")
	timed suspend "$hetckpt" suspend --pid "$running"
	local server
	for server in $(pgrep -f "hetckpt-server.* $running"); do
		! nvidia-smi --query-compute-apps=pid --format=csv,noheader 2>/dev/null | grep -qx "$server" ||
			die "the suspended program is on the GPU still"
	done
	by_driver 'a context' context
	timed resume "$hetckpt" resume --pid "$running"
	dump dump --leave-running
	dump 'dump --live' --leave-running --live
	rm "$data/dump --live.hetsnap"
	dump 'dump --parent' --leave-running --parent "$data/dump.hetsnap"
	rm "$data/dump --parent.hetsnap" "$data/dump.hetsnap"
	dump 'dump, end'
	wait || true
	"$hetckpt" restore --device cuda --timings "$work/timings" "$data/dump, end.hetsnap" >"$work/restored" 2>&1 &
	wait_for grep -q total "$work/timings"
	note restore "$(ms_of "$work/timings" total)"
	end_program
	wait || true
	rm "$data/dump, end.hetsnap"
}

# How long a program takes whose kernel computes for some 20 s, and how long its kernel does.
computing() { # SUFFIX COMMAND...
	local suffix=$1 begun=$EPOCHREALTIME launched=0 line
	shift
	"$@" 2>&1 | while read -r line; do
		case $line in
		*launched*) launched=$EPOCHREALTIME ;;
		*idle*) note "a kernel$suffix" "$(((${EPOCHREALTIME/[.,]/} - ${launched/[.,]/}) / 1000))" ;;
		esac
	done || die "a program$suffix has failed"
	note "a program$suffix" "$(((${EPOCHREALTIME/[.,]/} - ${begun/[.,]/}) / 1000))"
}

# Alone and with a snapshot every second. At its end a job removes its snapshots.
every() {
	local -a command=("$program" --gib "$gib" --sleeps 1 --iterations 150000 --progress)
	computing '' "$hetckpt" run --device cuda -- "${command[@]}"
	computing ', job --every 1s' "$hetckpt" job --scheduler none --name every --store "$data/store" --every 1s --device cuda \
		-- "${command[@]}"
	rm -rf "$data/store"
}

the_drivers() {
	mkdir "$data/images"
	setsid "$program" --gib "$gib" --iterations 1 --idle 3600 --progress </dev/null >"$work/out" 2>"$work/err" &
	running=$!
	wait_for grep -q idle "$work/err"
	by_driver 'driver: checkpoint' checkpoint "$running"
	timed 'criu dump' "$HETCKPT_CRIU" dump -t "$running" -D "$data/images" -o dump.log
	wait || true
	timed 'criu restore' "$HETCKPT_CRIU" restore -d -D "$data/images" -o restore.log
	by_driver 'driver: restore' restore "$running"
	end_program
	rm -r "$data/images"
}

for turn in $(seq "$turns"); do
	say "turn $turn"
	ours
	# Bash remarks on what CRIU kills.
	the_drivers 2>"$work/remarks" || die "the driver's way: $(cat "$work/remarks")"
	every
done
printf '%-26s %8s %8s %8s\n' "$gib GiB, ms" median least most
for what in suspend 'driver: checkpoint' resume 'a context' 'driver: restore' dump 'dump, stopped' 'dump --live' 'dump --live, stopped' \
	'dump --parent' 'dump, end' 'criu dump' restore 'criu restore' 'a kernel' 'a kernel, job --every 1s' 'a program' \
	'a program, job --every 1s'; do
	sort -n "$work/ms.$what" | awk -v what="$what" '{ ms[NR] = $1 }
		END { printf "%-26s %8d %8d %8d\n", what, ms[int((NR + 1) / 2)], ms[1], ms[NR] }'
done
