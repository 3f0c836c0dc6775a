#!/bin/bash
# Runs OpenCL programs that nobody here wrote: clFFT's client, CLBlast's tuners and pyopencl with its cache of binaries. Each checks its
# own results. Not a part of `make test`: it downloads packages and takes some minutes.
#
#   opencl.sh [--device DEVICE] [--no-install] [--dry-run] [NAME...]
#
#   --device DEVICE   as for `hetckpt run` (default: cpu)
#   --no-install      take what is installed
#   NAME              clfft, clblast or pyopencl (default: all)
#
# Debian and Ubuntu; elsewhere install clFFT's client, CLBlast's tuners and, in Python, pyopencl, then say --no-install.
# HETCKPT_STAGE is the tree with bin/hetckpt (default: target/stage-dev of this checkout, see `make staged PROFILE=dev`).
set -euo pipefail

say() { echo "applications: $*"; }

here=$(cd "$(dirname "$0")" && pwd)
stage=${HETCKPT_STAGE:-$here/../../target/stage-dev}
device=cpu install=1 dry_run='' names=()
while [ $# -gt 0 ]; do
	case $1 in
	--device) device=${2:?"--device needs a device"} && shift ;;
	--no-install) install= ;;
	--dry-run) dry_run=1 ;;
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	clfft | clblast | pyopencl) names+=("$1") ;;
	*) say "unknown argument $1 (see --help)" >&2 && exit 1 ;;
	esac
	shift
done
[ ${#names[@]} -gt 0 ] || names=(clfft clblast pyopencl)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# command...: runs it under hetckpt; its output is in $work/log.
under_hetckpt() {
	say "$*"
	(cd "$work" && "$stage/bin/hetckpt" run --device "$device" -- "$@") >"$work/log" 2>&1
}

# what: tells that it is wrong, with the end of its output.
wrong() {
	say "WRONG: $*" >&2
	tail -n 20 "$work/log" >&2
	failed=$((failed + 1))
}

# packages...: installs those that are missing.
packages() {
	local missing=() package
	for package in "$@"; do
		dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
	done
	[ -n "$install" ] && [ ${#missing[@]} -gt 0 ] || return 0
	say "installing ${missing[*]}"
	local as_root=()
	[ "$(id -u)" = 0 ] || as_root=(sudo)
	"${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"
}

# Lengths of all radices that the client's own check takes on other implementations too (11 and 13 it does not), in one to three
# dimensions, both precisions and directions.
clfft() {
	packages clfft-client
	local arguments
	while read -ra arguments; do
		if ! under_hetckpt clFFT-client "${arguments[@]}" || ! grep -q 'Internal Client Test .*PASS' "$work/log"; then
			wrong "clFFT-client ${arguments[*]}"
		fi
	done <<-'END'
		-x 1024
		-x 1000 -b 4
		-x 343 --outPlace
		-x 64 -y 64
		-x 32 -y 16 -z 8
		-x 2187 --double --outPlace
		-x 3125 --inv
		-x 1024 --inLayout 5 --outLayout 3 --outPlace
		-x 65536
	END
}

# Sizes are multiples of what the tuners' kernels take at once: with others they leave their buffers.
clblast() {
	packages clblast-tests
	local arguments
	while read -ra arguments; do
		if ! under_hetckpt "${arguments[@]}" -runs 1 || ! grep -aq 'results match' "$work/log" ||
			! grep -aq 'Completed tuning process' "$work/log" || grep -aqE 'L2 error|compilation error|error code' "$work/log"; then
			wrong "${arguments[*]}"
		else
			say "$(grep -ac 'results match' "$work/log") configurations match"
		fi
	done <<-'END'
		clblast_tuner_xaxpy -n 65536
		clblast_tuner_xdot -n 65536
		clblast_tuner_xger -m 256 -n 256
		clblast_tuner_copy_fast -m 256 -n 256
		clblast_tuner_copy_pad -m 256 -n 256
		clblast_tuner_transpose_fast -m 512 -n 512
		clblast_tuner_transpose_pad -m 512 -n 512
	END
}

# The second run has no compiler: it takes the program from the cache that the first one left.
pyopencl() {
	local python=python3 compiler
	if [ -n "$install" ]; then
		packages python3-venv
		python3 -m venv "$work/venv"
		"$work/venv/bin/pip" install --quiet pyopencl numpy
		python=$work/venv/bin/python
	fi
	export XDG_CACHE_HOME=$work/cache
	for compiler in "${HETCKPT_CLANG-}" "$work/no-such-clang"; do
		if ! HETCKPT_CLANG=$compiler under_hetckpt "$python" "$here/pyopencl_cache.py" || ! grep -q '^PASS$' "$work/log"; then
			wrong "pyopencl with compiler '$compiler'"
		fi
	done
}

if [ -n "$dry_run" ]; then
	say "would run ${names[*]} under $stage/bin/hetckpt on device $device"
	exit
fi
[ -x "$stage/bin/hetckpt" ] || { say "there is no $stage/bin/hetckpt: run \`make staged\`, or name a tree in HETCKPT_STAGE" >&2 && exit 1; }
for name in "${names[@]}"; do
	"$name"
done
[ "$failed" = 0 ] || { say "$failed wrong" >&2 && exit 1; }
say "all right"
