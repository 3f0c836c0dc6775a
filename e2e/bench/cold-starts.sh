#!/bin/bash
# How long whole programs take with empty caches, when all their kernels are compiled, and with full ones.
#
#   cold-starts.sh [--dry-run] [--device DEVICE] [--turns N] [STAGE...]
#
#   --device DEVICE  as `hetckpt run` takes it (cpu)
#   --turns N        medians of so many (5)
#   STAGE            staged trees to compare, by turns (target/stage, as `make build` leaves it)
#
# Two programs are built with nvcc against CUB and Thrust, which come with it; the others are from `make programs`.
# Prints a table, seconds.
set -euo pipefail

die() { echo "cold-starts: $*" >&2; exit 1; }

device=cpu turns=5 dry_run='' stages=()
while [ $# -gt 0 ]; do
	case $1 in
	--dry-run) dry_run=1 ;;
	--device) device=${2:?--device needs a name} && shift ;;
	--turns) turns=${2:?--turns needs a number} && shift ;;
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	-*) die "unknown argument $1 (see --help)" ;;
	*) stages+=("$(realpath "$1")") ;;
	esac
	shift
done
here=$(dirname "$(realpath "$0")")
target=${CARGO_TARGET_DIR:-$here/../../target}
programs=${HETCKPT_PROGRAMS:-$target/e2e/programs}
[ ${#stages[@]} != 0 ] || stages=("$target/stage")
if [ -n "$dry_run" ]; then
	echo "would time 5 programs on $device with ${stages[*]}, $turns turns"
	exit
fi
nvcc=${NVCC:-${HETCKPT_CACHE:-$HOME/.cache/hetckpt}/nvcc-13.0/bin/nvcc}
[ -x "$nvcc" ] || die 'nvcc is missing: e2e/setup/install-nvcc.sh'
for stage in "${stages[@]}"; do [ -x "$stage/bin/hetckpt" ] || die "$stage has no hetckpt: \`make build programs\`"; done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in sort_by_key device_scan; do
	"$nvcc" -gencode arch=compute_75,code=compute_75 -O3 -std=c++17 -o "$work/$name" "$here/$name.cu"
done
timed() { # STAGE PROGRAM
	local begun=$EPOCHREALTIME
	HETCKPT_CACHE=$work/cache XDG_CACHE_HOME=$work/cache "$1/bin/hetckpt" run --device "$device" -- "$2" >"$work/said" 2>&1 ||
		die "$2 failed: $(tail -n 3 "$work/said")"
	local ended=$EPOCHREALTIME
	echo $((${ended/[.,]/} - ${begun/[.,]/}))
}
median() { sort -n "$1" | awk '{ us[NR] = $1 } END { printf "%.2f", us[int((NR + 1) / 2)] / 1e6 }'; }

printf '%-14s %-28s %8s %8s\n' program stage cold warm
for program in "$work/sort_by_key" "$work/device_scan" "$programs"/{scan,neural_layer,vector_add}; do
	for at in "${!stages[@]}"; do : >"$work/cold.$at" && : >"$work/warm.$at"; done
	for _ in $(seq "$turns"); do
		for at in "${!stages[@]}"; do
			rm -rf "$work/cache"
			timed "${stages[$at]}" "$program" >>"$work/cold.$at"
			timed "${stages[$at]}" "$program" >>"$work/warm.$at"
		done
	done
	for at in "${!stages[@]}"; do
		printf '%-14s %-28s %8s %8s\n' "$(basename "$program")" "$(basename "${stages[$at]}")" \
			"$(median "$work/cold.$at")" "$(median "$work/warm.$at")"
	done
done
