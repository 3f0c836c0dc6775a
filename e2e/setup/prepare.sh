#!/bin/bash
# Installs whatever this machine still lacks to build and test hetckpt, and says what it does. Does nothing, in well
# under a second, where all is there.
#
#   prepare.sh [--dry-run]
#
#   1. gcc, g++, make, python3 with pip, shellcheck, git   packages of the distribution
#   2. LLVM 22 with its static libraries                   install-llvm.sh
#   3. CRIU 4.2 or newer, in a folder of its own           install-criu.sh
#   4. nvcc 13.0 for the test programs, likewise           install-nvcc.sh
#   5. an OpenCL device and clang, for tests of OpenCL     install-opencl.sh
#   6. Slurm, for tests of batch scheduling                install-slurm.sh
#   7. clang and libelf, for the eBPF programs of `trace`  install-bpf.sh
#   8. Open MPI, for tests of MPI jobs                     install-mpi.sh
#
# Folders and downloads lie in $HETCKPT_CACHE (default ~/.cache/hetckpt). 1, 2, 5, 6 and 8 need root on Debian; each script's --help
# says what other distributions need. A Rust toolchain with rustfmt and clippy must be there already.
set -euo pipefail

say() { echo "prepare: $*"; }
die() { say "$*" >&2; exit 1; }

dry_run=()
while [ $# -gt 0 ]; do
	case $1 in
	--dry-run) dry_run=(--dry-run) ;;
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	*) die "unknown argument $1 (see --help)" ;;
	esac
	shift
done

export HETCKPT_CACHE=${HETCKPT_CACHE:-$HOME/.cache/hetckpt}
here=$(dirname "$(realpath "$0")")

# Installs the packages of which the program named before the colon is missing.
install_tools() {
	local missing=() entry
	for entry in gcc:gcc g++:g++ make:make python3:python3 shellcheck:shellcheck git:git; do
		command -v "${entry%%:*}" >/dev/null || missing+=("${entry#*:}")
	done
	[ -r "$HETCKPT_CACHE/nvcc-13.0/.installed-wheels" ] || python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
	[ ${#missing[@]} != 0 ] || return 0
	if [ ${#dry_run[@]} != 0 ]; then
		say "would install ${missing[*]}"
		return
	fi
	command -v apt-get >/dev/null || die "install these by your distribution's means: ${missing[*]}"
	[ "$(id -u)" = 0 ] || die "run as root: apt-get install ${missing[*]}"
	say "installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update
	apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
}

check_rust() {
	command -v cargo >/dev/null || die "a Rust toolchain is missing: install rustup, or your distribution's cargo >= 1.89"
	local program
	for program in rustfmt cargo-clippy; do
		command -v "$program" >/dev/null || say "$program is missing: \`make test\` will fail (rustup component add rustfmt clippy)"
	done
}

install_tools
check_rust
"$here/install-llvm.sh" "${dry_run[@]}"
"$here/install-criu.sh" "${dry_run[@]}"
"$here/install-nvcc.sh" "${dry_run[@]}"
"$here/install-opencl.sh" "${dry_run[@]}"
"$here/install-slurm.sh" "${dry_run[@]}"
"$here/install-bpf.sh" "${dry_run[@]}"
"$here/install-mpi.sh" "${dry_run[@]}"
