#!/bin/bash
# Random preemptions to, from and between the OpenCL devices of this machine and the CPU. Used by `make opencl-test`, which sets what the
# end-to-end tests want.
#
#   opencl-preemptions.sh [--all] [PROGRAM…]     of these test programs only (vector_add, scan, …)
#
#   --all   every ordered pair of devices but from the CPU to itself; else from the CPU to each, from each to the CPU, and a ring
#           through the OpenCL devices (one alone: to itself)
#
#   HETCKPT_PREEMPTIONS   of each program in each direction (1)
#
# Beside the registered OpenCL devices it takes Intel's, if install-intel-opencl.sh has installed it.
set -euo pipefail

all_pairs=
if [ "${1:-}" = --all ]; then
	all_pairs=1
	shift
fi
export HETCKPT_PREEMPTIONS=${HETCKPT_PREEMPTIONS:-1}
# Few blocks, so that an OpenCL device that is a CPU takes no longer than ours.
export HETCKPT_E2E_SMALL=1
cache=${HETCKPT_CACHE:-$HOME/.cache/hetckpt}
state=${HETCKPT_E2E_STATE:-$(dirname "$HETCKPT_STAGE")/e2e/opencl}
mkdir -p "$state"

vendors=${OCL_ICD_VENDORS:-/etc/OpenCL/vendors}
if [ -d "$cache/intel-opencl/vendors" ] && [ -d "$vendors" ]; then
	rm -rf "$state/vendors"
	mkdir "$state/vendors"
	cp "$vendors"/*.icd "$cache/intel-opencl/vendors/"*.icd "$state/vendors/" 2>/dev/null || true
	export OCL_ICD_VENDORS=$state/vendors OPENCL_VENDOR_PATH=$state/vendors
fi

mapfile -t devices < <("$HETCKPT_STAGE/bin/hetckpt" devices --json | python3 -c '
import json, sys
for device in json.load(sys.stdin):
    # One that cannot be used is listed with the reason.
    if device["kind"] == "opencl" and not device["opencl"].get("unusable"):
        print(device["id"], device["name"], device["driver"], sep="\t")')
if [ ${#devices[@]} = 0 ]; then
	echo 'skipped: random preemptions on OpenCL devices (there is none)'
	exit
fi
printf '%s\n' "${devices[@]}"

ids=()
for device in "${devices[@]}"; do
	ids+=("${device%%$'\t'*}")
done
ways=()
if [ -n "$all_pairs" ]; then
	for from in cpu "${ids[@]}"; do
		for to in cpu "${ids[@]}"; do
			[ "$from $to" = 'cpu cpu' ] || ways+=("$from $to")
		done
	done
else
	for i in "${!ids[@]}"; do
		ways+=("cpu ${ids[i]}" "${ids[i]} cpu" "${ids[i]} ${ids[(i + 1) % ${#ids[@]}]}")
	done
fi
tests=("${@/#/preempt_}")
if [ ${#tests[@]} = 0 ]; then
	tests=(preempt)
	# The OpenCL programs bring no kernels of another sort, but take as long again: several of each, or none.
	[ "$HETCKPT_PREEMPTIONS" -gt 1 ] || tests+=(--skip preempt_cl_)
fi
failed=() reasons=()
for way in "${ways[@]}"; do
	read -r from to <<<"$way"
	echo "from $from to $to"
	HETCKPT_E2E_STATE=$state HETCKPT_E2E_FROM=$from HETCKPT_E2E_TO=$to \
		"${CARGO:-cargo}" test --profile "${PROFILE:-dev}" --workspace --locked --test e2e -- "${tests[@]}" 2>&1 |
		tee "$state/output" || {
		failed+=("$from->$to")
		reasons+=("from $from to $to: $(sed '1,/^failures:$/d' "$state/output")")
	}
done
if [ ${#failed[@]} != 0 ]; then
	# Other ways' output may stand between.
	printf '%s\n' "${reasons[@]}" "failed: ${failed[*]}" >&2
	exit 1
fi
