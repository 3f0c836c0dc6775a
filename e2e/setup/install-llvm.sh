#!/bin/bash
# Installs what building the CPU code generator needs: LLVM 22 with its static libraries, and the libraries that those
# want. Only the build needs them; the built code generator holds LLVM inside.
#
#   install-llvm.sh [--dry-run]
#
# Debian 12 has LLVM 22 among its ordinary and security updates, Debian 13 and later likewise.
#
# Other distributions need LLVM 22 with static libraries (llvm-config --link-static must work), Polly's too, plus the
# development files of libffi, zlib and zstd:
#   Ubuntu    the same package names, from the LLVM project's own apt archive where the release lacks llvm-22-dev
#   Fedora    llvm22-devel llvm22-static polly22-devel libffi-devel zlib-devel libzstd-devel libstdc++-static
#   others    build LLVM 22 with -DLLVM_ENABLE_PROJECTS=polly -DLLVM_BUILD_LLVM_DYLIB=OFF
# and then LLVM_SYS_221_PREFIX in the environment of `make`, if llvm-config is not in /usr/lib/llvm-22/bin.
set -euo pipefail

say() { echo "install-llvm: $*"; }
die() { say "$*" >&2; exit 1; }

dry_run=
while [ $# -gt 0 ]; do
	case $1 in
	--dry-run) dry_run=1 ;;
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	*) die "unknown argument $1 (see --help)" ;;
	esac
	shift
done

packages=(llvm-22-dev libpolly-22-dev libffi-dev zlib1g-dev libzstd-dev)

debian_prefix=/usr/lib/llvm-22
own_prefix=${LLVM_SYS_221_PREFIX:-$debian_prefix}
if [ "$own_prefix" != "$debian_prefix" ] && [ -x "$own_prefix/bin/llvm-config" ]; then
	say "LLVM $("$own_prefix/bin/llvm-config" --version) of $own_prefix is used"
	exit
fi
command -v dpkg-query >/dev/null || die "this is no Debian; --help says what to install"

missing=()
for package in "${packages[@]}"; do
	[ "$(dpkg-query -Wf '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} = 0 ]; then
	say "LLVM 22 is installed already"
	exit
fi
if [ -n "$dry_run" ]; then
	say "would install ${missing[*]}"
	exit
fi
[ "$(id -u)" = 0 ] || die "run as root: apt-get install ${missing[*]}"
say "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null ||
	die "apt could not install them; --help says what is needed"
