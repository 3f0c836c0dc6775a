#!/bin/bash
# Random preemptions to, from and between the OpenCL devices of this machine and the CPU: every ordered pair of devices but
# from the CPU to itself. Used by `make opencl-test`, which sets what the end-to-end tests want.
#
#   opencl-preemptions.sh [PROGRAM…]     of these test programs only (vector_add, scan, …)
#
#   HETCKPT_PREEMPTIONS   of each program in each direction (1)
#
# Beside the registered OpenCL devices it takes Intel's, if install-intel-opencl.sh has installed it.
set -euo pipefail

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

ids=(cpu)
for device in "${devices[@]}"; do
	ids+=("${device%%$'\t'*}")
done
tests=("${@/#/preempt_}")
if [ ${#tests[@]} = 0 ]; then
	tests=(preempt)
	# The OpenCL programs bring no kernels of another sort, but take as long again: several of each, or none.
	[ "$HETCKPT_PREEMPTIONS" -gt 1 ] || tests+=(--skip preempt_cl_)
fi
failed=()
for from in "${ids[@]}"; do
	for to in "${ids[@]}"; do
		[ "$from $to" != 'cpu cpu' ] || continue
		echo "from $from to $to"
		HETCKPT_E2E_STATE=$state HETCKPT_E2E_FROM=$from HETCKPT_E2E_TO=$to \
			"${CARGO:-cargo}" test --profile "${PROFILE:-dev}" -p hetckpt-e2e --locked --test e2e -- "${tests[@]}" ||
			failed+=("$from->$to")
	done
done
if [ ${#failed[@]} != 0 ]; then
	echo "failed: ${failed[*]}" >&2
	exit 1
fi
