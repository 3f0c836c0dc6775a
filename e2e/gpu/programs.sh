#!/bin/bash
# Whole programs on a machine with an NVIDIA GPU, natively and under hetckpt by turns.
#
#   programs.sh [--dry-run] [--turns N] [--list FILE] [--only NAME]... [PART...]     PART: cold warm kernels (all of them)
#
#   cold     each program with empty caches, once (N turns of it), natively and under hetckpt
#   warm     with full caches: medians of N turns (3), and the geometric mean of the ratios
#   kernels  each kernel's shortest time by events round each launch, natively and probed
#
# FILE (list, in the current folder) names the programs, which lie beside it: a line each, `NAME PASSES SMALL | LARGE`.
# A program is right if it ends with 0, prints PASS at least PASSES times, and never FAIL. `cold` and `kernels` give it
# the arguments SMALL, `warm` LARGE. Tables go to standard output; where OUT names a folder, JSON lines to
# $OUT/programs.jsonl. Works in the source tree after `make build`, or from a bundle (bundle.sh). Needs gcc for
# `kernels`.
set -euo pipefail

say() { echo "== $*"; }
die() { echo "programs: $*" >&2; exit 1; }

parts=() only=() turns=3 list=list dry_run=
while [ $# -gt 0 ]; do
	case $1 in
	--dry-run) dry_run=1 ;;
	--turns) turns=${2:?--turns needs a number} && shift ;;
	--list) list=${2:?--list needs a file} && shift ;;
	--only) only+=("${2:?--only needs a name}") && shift ;;
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	cold | warm | kernels) parts+=("$1") ;;
	*) die "unknown argument $1 (see --help)" ;;
	esac
	shift
done
[ ${#parts[@]} != 0 ] || parts=(cold warm kernels)
[ -r "$list" ] || die "$list cannot be read (see --help)"
[ -z "$dry_run" ] || { echo "would run: ${parts[*]} of the programs of $list, $turns turns"; exit; }

# shellcheck source=e2e/gpu/measuring.sh
. "$(dirname "$(realpath "$0")")/measuring.sh"
folder=$(dirname "$(realpath "$list")")
results=${OUT:+$OUT/programs.jsonl}
failed=()

record() { echo "$1" >>"${results:-/dev/null}"; } # one line of JSON

# Calls FUNCTION NAME PASSES ARGUMENTS... for each program that was asked for.
each() { # SIZE FUNCTION
	local size=$1 function=$2 name passes rest
	while read -r name passes rest; do
		[[ ${#only[@]} = 0 || " ${only[*]} " == *" $name "* ]] || continue
		[ "$size" = small ] && rest=${rest%%|*} || rest=${rest#*|}
		# shellcheck disable=SC2086
		(cd "$folder" && "$function" "$name" "$passes" $rest) || failed+=("${FUNCNAME[1]}: $name")
	done <"$list"
}

# Runs a program natively or under hetckpt and sets `took`, in seconds.
timed() { # WAY NAME PASSES ARGUMENTS...
	local way=$1 name=$2 passes=$3 began ended under=()
	shift 3
	[ "$way" = native ] || under=("$hetckpt" run --device cuda --)
	began=$EPOCHREALTIME
	timeout 120 "${under[@]}" "./$name" "$@" >"$work/out" 2>&1 || { tail -n 3 "$work/out"; echo "$name, $way: status $?"; return 1; }
	ended=$EPOCHREALTIME
	took=$(awk "BEGIN { printf \"%.3f\", $ended - $began }")
	if [ "$(grep -c PASS "$work/out")" -lt "$passes" ] || grep -q FAIL "$work/out"; then
		echo "$name, $way: wrong results"
		return 1
	fi
}

medians() { # PART NAME: prints and records a row from $work/native and $work/hetckpt
	local native ours
	native=$(median <"$work/native") ours=$(median <"$work/hetckpt")
	awk "BEGIN { printf \"%-20s %8.3f %8.3f %8.3f %8.3f\n\", \"$2\", $native, $ours, $ours / $native, $ours - $native }" | tee -a "$work/rows"
	record "{\"what\": \"$1\", \"program\": \"$2\", \"native_s\": $native, \"hetckpt_s\": $ours}"
}

heading() { printf '%-20s %8s %8s %8s %8s\n' program native hetckpt ratio more && : >"$work/rows"; }

one_cold() { # NAME PASSES ARGUMENTS...
	local way turn took
	rm -f "$work/native" "$work/hetckpt"
	for turn in $(seq "$turns"); do
		for way in native hetckpt; do
			rm -rf "$work/cache"
			CUDA_CACHE_PATH=$work/cache/native XDG_CACHE_HOME=$work/cache timed "$way" "$@"
			echo "$took" >>"$work/$way"
		done
	done
	medians cold "$1"
}

cold() {
	say "empty caches, medians of $turns turns, seconds"
	heading
	each small one_cold
}

one_warm() { # NAME PASSES ARGUMENTS...
	local way turn took
	rm -f "$work/native" "$work/hetckpt"
	for turn in $(seq 0 "$turns"); do
		for way in native hetckpt; do
			timed "$way" "$@"
			[ "$turn" = 0 ] || echo "$took" >>"$work/$way" # the first fills the caches
		done
	done
	medians warm "$1"
}

warm() {
	say "full caches, medians of $turns turns, seconds"
	heading
	each large one_warm
	awk '{ sum += log($4) } END { if (NR) printf "geometric mean of %d ratios: %.3f\n", NR, exp(sum / NR) }' "$work/rows"
	awk '$4 > 1.1 { print "above 1.10: " $1 }' "$work/rows"
}

one_kernels() { # NAME PASSES ARGUMENTS...
	local took
	LD_LIBRARY_PATH=$work/times HETCKPT_KERNEL_TIMES=$work/kernels.native timed native "$@"
	LD_LIBRARY_PATH=$work/times HETCKPT_KERNEL_TIMES=$work/kernels.hetckpt HETCKPT_CUDA_DRIVER=$work/times/libcuda.so.1 timed hetckpt "$@"
}

# Each kernel's shortest time in all processes: name, microseconds.
shortest() { # WAY
	cat "$work/kernels.$1".* | tr -d '\0' | awk '!($1 in time) || $3 < time[$1] { time[$1] = $3 } END { for (name in time) print name, time[name] }' | sort
}

kernels() {
	wrap_driver kernel_times.c
	say "kernels: shortest time of a launch, microseconds"
	each small one_kernels
	shortest native >"$work/n"
	shortest hetckpt >"$work/h"
	join "$work/n" "$work/h" | awk '{ printf "%8.2f %8.2f %+7.1f %% %s\n", $2, $3, ($3 / $2 - 1) * 100, substr($1, 1, 90) }' | sort -k 3 -g -r >"$work/joined"
	awk '{ sum += log($2 / $1); if ($1 >= 20) { long += log($2 / $1); n++; if ($2 / $1 > 1.08) worse++ } }
		END { printf "%d kernels: geometric mean %+.1f %%; %d of 20 us and more: %+.1f %%, %d of them above 8 %%\n",
			NR, (exp(sum / NR) - 1) * 100, n, n ? (exp(long / n) - 1) * 100 : 0, worse }' "$work/joined"
	say "those above 5 %"
	awk '$3 > 5' "$work/joined"
}

for part in "${parts[@]}"; do "$part"; done
[ ${#failed[@]} = 0 ] || die "failed: ${failed[*]}"
say "done"
