#!/bin/bash
# Installs what `hetckpt-tracer` is built with: a clang that compiles for eBPF, libelf, zlib and Linux's headers for
# programs. Does nothing where all is there.
#
#   install-bpf.sh [--dry-run]
#
# Other distributions than Debian and Ubuntu: Fedora has them as clang, elfutils-libelf-devel, zlib-devel,
# kernel-headers and pkgconf; Arch as clang, libelf, zlib, linux-api-headers and pkgconf.
set -euo pipefail

say() { echo "install-bpf: $*"; }

dry_run=
while [ $# -gt 0 ]; do
	case $1 in
	--dry-run) dry_run=1 ;;
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	*) say "unknown argument $1 (see --help)" >&2 && exit 1 ;;
	esac
	shift
done

missing=()
has_header() { printf '#include <%s>\n' "$1" | "${CC:-cc}" -E - >/dev/null 2>&1; }
command -v "${HETCKPT_BPF_CLANG:-clang}" >/dev/null || missing+=(clang)
has_header libelf.h || missing+=(libelf-dev)
has_header zlib.h || missing+=(zlib1g-dev)
has_header linux/bpf.h || missing+=(linux-libc-dev)
command -v pkg-config >/dev/null || missing+=(pkg-config)
[ ${#missing[@]} != 0 ] || exit 0

if [ -n "$dry_run" ]; then
	say "would install ${missing[*]}"
	exit
fi
if ! command -v apt-get >/dev/null; then
	say "install these by your distribution's means (--help): ${missing[*]}" >&2 && exit 1
fi
[ "$(id -u)" = 0 ] || { say "run as root: apt-get install ${missing[*]}" >&2 && exit 1; }
say "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
