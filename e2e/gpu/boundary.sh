#!/bin/bash
# What the boundary between a program and its device server costs, on a machine with an NVIDIA GPU.
#
#   boundary.sh [--dry-run] [--turns N] [PART...]     PART: calls driver pauses idle (all of them)
#
#   calls    launches, waits, events, graphs of 100 kernels (of PTX, and of machine code), allocations and copies:
#            natively and under hetckpt by turns, medians of N turns (7)
#   driver   which driver calls the server makes for 20,000 launches, and how long they take
#   pauses   100 pauses amid short launches, and 100 of a long kernel
#   idle     what eight jobs that wait use of a processor in a minute, and the memory of a server
#
# Works in the source tree after `make build programs`, or from a bundle (bundle.sh). Prints tables; where OUT names a
# folder, JSON lines go to $OUT/boundary.jsonl. HETCKPT_BEFORE may name the stage of another build, to be timed beside
# this one.
set -euo pipefail

say() { echo "== $*"; }
die() { echo "boundary: $*" >&2; exit 1; }

parts=() turns=7 dry_run=
while [ $# -gt 0 ]; do
	case $1 in
	--dry-run) dry_run=1 ;;
	--turns) turns=${2:?--turns needs a number} && shift ;;
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	calls | driver | pauses | idle) parts+=("$1") ;;
	*) die "unknown argument $1 (see --help)" ;;
	esac
	shift
done
[ ${#parts[@]} != 0 ] || parts=(calls driver pauses idle)
[ -z "$dry_run" ] || { echo "would run: ${parts[*]}, $turns turns"; exit; }

# shellcheck source=e2e/gpu/measuring.sh
. "$(dirname "$(realpath "$0")")/measuring.sh"
results=${OUT:+$OUT/boundary.jsonl}
failed=()

record() { echo "$1" >>"${results:-/dev/null}"; } # one line of JSON

calls() {
	say "calls, medians of $turns turns"
	local turn way run_with ways=(native hetckpt)
	[ -z "${HETCKPT_BEFORE:-}" ] || ways+=(before)
	for turn in $(seq "$turns"); do
		for way in "${ways[@]}"; do
			case $way in
			native) run_with=() ;;
			hetckpt) run_with=("$hetckpt" run --device cuda --) ;;
			before) run_with=(env "HETCKPT_STAGE=$HETCKPT_BEFORE" "$HETCKPT_BEFORE/bin/hetckpt" run --device cuda --) ;;
			esac
			{
				"${run_with[@]}" "$HETCKPT_PROGRAMS/boundary" --rounds 3
				"${run_with[@]}" "$HETCKPT_PROGRAMS/boundary_native" --rounds 3 graph | sed 's/"graph/"native_graph/'
			} >"$work/$way.$turn" || failed+=("calls: $way, turn $turn")
		done
	done
	local what key goal native ours before
	printf '%-14s %10s %10s %10s %8s %s\n' what native hetckpt before ratio goal
	while read -r what key goal; do
		for way in "${ways[@]}"; do
			sed -n "s/.*\"what\": \"$what\", \"$key\": \([0-9.]*\).*/\1/p" "$work/$way".* | median >"$work/median.$way"
		done
		native=$(cat "$work/median.native") ours=$(cat "$work/median.hetckpt")
		before=$(cat "$work/median.before" 2>/dev/null || true)
		printf '%-14s %10s %10s %10s %8s %s\n' "$what" "$native" "$ours" "${before:--}" "$(awk "BEGIN { printf \"%.2f\", $ours / $native }")" "$goal"
		record "{\"what\": \"$what\", \"unit\": \"$key\", \"native\": $native, \"hetckpt\": $ours, \"before\": ${before:-null}}"
	done <<-END
		launch us 1.0
		streams us 1.0
		sync us 1.3
		readback us 1.3
		event us 1.3
		graph us 1.2
		graph_sync us 1.2
		native_graph us 1.2
		native_graph_sync us 1.2
		malloc us 1.5
		pageable_in gb_per_s 1.0
		pageable_out gb_per_s 1.0
		pinned_in gb_per_s 0.98
		pinned_out gb_per_s 0.98
	END
}

driver() {
	local what
	wrap_driver driver_times.c
	for what in launch sync readback event malloc; do
		say "driver calls of the server for \`boundary $what\`: calls, microseconds each"
		LD_LIBRARY_PATH=$work/times HETCKPT_DRIVER_TIMES=$work/times/$what HETCKPT_CUDA_DRIVER=$work/times/libcuda.so.1 \
			"$hetckpt" run --device cuda -- "$HETCKPT_PROGRAMS/boundary" --rounds 1 "$what" || failed+=("driver: $what")
		awk '$2 { printf "%-24s %8d %8.2f\n", $1, $2, $3 / $2 / 1000 }' "$work/times/$what" || failed+=("driver: no times of $what")
	done
}

number() { sed -n "s/.*\"$1\": *\([0-9][0-9.e-]*\).*/\1/p" "$work/pause" | head -n 1; }

pauses() {
	local program
	for program in "boundary --rounds 400 launch" "spin --blocks 528 --threads 256 --iterations 400000000"; do
		say "100 pauses of $program"
		# shellcheck disable=SC2086
		"$hetckpt" run --device cuda --pid-file "$work/pid" -- "$HETCKPT_PROGRAMS"/$program >"$work/out" 2>&1 &
		local supervisor=$!
		sleep 3
		"$hetckpt" pause --pid "$(cat "$work/pid")" --repeat 100 --json >"$work/pause" || failed+=("pauses: $program")
		grep -E '"(p50|p99|max)"' "$work/pause" || cat "$work/pause"
		record "{\"what\": \"pauses of $program\", \"p50_ms\": $(number p50), \"p99_ms\": $(number p99), \"max_ms\": $(number max)}"
		kill "$supervisor" 2>/dev/null || true
		wait "$supervisor" || true
	done
}

# Processor time of a process and its threads, in ticks.
ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$1/stat"; }

idle() {
	say "eight jobs that wait: four of themselves, four for a kernel"
	local supervisors=() servers=() server before=0 after=0
	for _ in $(seq 4); do
		"$hetckpt" run --device cuda -- "$HETCKPT_PROGRAMS/boundary" wait >/dev/null 2>&1 &
		supervisors+=($!)
		"$hetckpt" run --device cuda -- "$HETCKPT_PROGRAMS/paced" --iterations 1200000 >/dev/null 2>&1 &
		supervisors+=($!)
	done
	sleep 15
	mapfile -t servers < <(pgrep -x hetckpt-server)
	for server in "${servers[@]}"; do before=$((before + $(ticks "$server"))); done
	sleep 60
	for server in "${servers[@]}"; do after=$((after + $(ticks "$server"))); done
	awk -v ticks=$((after - before)) -v hz="$(getconf CLK_TCK)" -v count=${#servers[@]} \
		'BEGIN { printf "%d servers have used %.2f %% of a processor\n", count, ticks / hz / 60 * 100 }'
	for server in "${servers[@]}"; do grep VmRSS "/proc/$server/status" || true; done | sort | uniq -c
	kill "${supervisors[@]}" 2>/dev/null || true
	wait "${supervisors[@]}" || true
}

for part in "${parts[@]}"; do "$part"; done
[ ${#failed[@]} = 0 ] || die "failed: ${failed[*]}"
say "done"
