#!/bin/bash
# Installs what the tests of OpenCL want: an OpenCL device for the CPU (PoCL), unless there is an OpenCL device already;
# clang, which compiles generated OpenCL C for devices that are not there (AMD's gfx942 is known from version 17 on); and, for OpenCL programs, clang's libclc, the
# headers and the loader to link with; the translator to SPIR-V of clang's version, or of the newest there is, with its clang, and
# spirv-val. Tests that lack them are skipped and say so.
#
#   install-opencl.sh [--dry-run]
#
# Other distributions than Debian and Ubuntu: Fedora has them as pocl, clang, libclc, opencl-headers, ocl-icd-devel,
# spirv-llvm-translator and spirv-tools; Arch as pocl, clang, libclc, opencl-headers, ocl-icd, spirv-llvm-translator and spirv-tools.
set -euo pipefail

say() { echo "install-opencl: $*"; }

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
compgen -G '/etc/OpenCL/vendors/*.icd' >/dev/null || missing+=(pocl-opencl-icd)
[[ $(ldconfig -p) == *libOpenCL.so.1* ]] || missing+=(ocl-icd-libopencl1)
command -v clang >/dev/null || compgen -G '/usr/lib/llvm-*/bin/clang' >/dev/null || missing+=(clang)
knows_gfx942=
for compiler in /usr/lib/llvm-*/bin/clang; do
	version=${compiler#/usr/lib/llvm-}
	version=${version%%/*}
	[ ! -x "$compiler" ] || [ "$version" -lt 17 ] || knows_gfx942=1
done
if [ -z "$knows_gfx942" ]; then
	newest=$(apt-cache pkgnames clang- 2>/dev/null | sed -n 's/^clang-\([0-9]*\)$/\1/p' | sort -n | tail -n 1)
	[ "${newest:-0}" -lt 17 ] || missing+=("clang-$newest")
fi
[ -e /usr/include/CL/cl.h ] || missing+=(opencl-c-headers)
[ -e /usr/lib/x86_64-linux-gnu/libOpenCL.so ] || [ -e /usr/lib64/libOpenCL.so ] || [ -e /usr/lib/libOpenCL.so ] ||
	missing+=(ocl-icd-opencl-dev)
# libclc is read by the clang that it was made for.
if ! compgen -G '/usr/*/clc/nvptx64--nvidiacl.bc' >/dev/null; then
	if command -v clang >/dev/null; then
		version=$(clang -dumpversion)
	else
		version=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\).*/\1/p' | head -n 1)
	fi
	missing+=("libclc-${version%%.*}")
fi
command -v spirv-val >/dev/null || missing+=(spirv-tools)
has_pair=
for translator in /usr/bin/llvm-spirv-*; do
	version=${translator##*-}
	[ ! -x "$translator" ] || [ ! -x "/usr/lib/llvm-$version/bin/clang" ] || has_pair=1
done
if [ -z "$has_pair" ]; then
	newest=$(apt-cache pkgnames llvm-spirv- 2>/dev/null | sed -n 's/^llvm-spirv-\([0-9]*\)$/\1/p' | sort -n | tail -n 1)
	[ -z "$newest" ] || missing+=("clang-$newest" "llvm-spirv-$newest")
fi
[ ${#missing[@]} != 0 ] || exit 0

if [ -n "$dry_run" ]; then
	say "would install ${missing[*]}"
elif ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
	say "not installed, so tests will be skipped: ${missing[*]} (--help says what other distributions call them)"
else
	say "installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update
	apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
fi
