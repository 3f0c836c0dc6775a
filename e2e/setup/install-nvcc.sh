#!/bin/bash
# Installs the CUDA 13.0 compiler for the test programs from NVIDIA's Python wheels. It needs neither a GPU nor a driver.
#
#   install-nvcc.sh [--prefix DIR] [--dry-run]
#
#   --prefix DIR   where to install; DIR/bin/nvcc is the compiler
#                  (default: $HETCKPT_CACHE/nvcc-13.0, and HETCKPT_CACHE is ~/.cache/hetckpt)
#   --dry-run      say what would be done
#
# About 105 MB of download, kept in $HETCKPT_CACHE/wheels, and 270 MB installed. x86-64 only. Needs python3 with pip (which
# is asked as it is configured on this machine) and g++ 15 or older, which nvcc calls even to make PTX.
set -euo pipefail

say() { echo "install-nvcc: $*"; }
die() { say "$*" >&2; exit 1; }

cache=${HETCKPT_CACHE:-$HOME/.cache/hetckpt}
prefix=$cache/nvcc-13.0 dry_run=
while [ $# -gt 0 ]; do
	case $1 in
	--prefix) prefix=${2:?} && shift ;;
	--dry-run) dry_run=1 ;;
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	*) die "unknown argument $1 (see --help)" ;;
	esac
	shift
done

# Every part is pinned with its digest: the compiler's package names its parts without versions, so pip alone would
# mix it with the newest ones.
requirements() {
	cat <<-'END'
		nvidia-cuda-nvcc==13.0.88 --hash=sha256:56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
		nvidia-cuda-crt==13.0.88 --hash=sha256:2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
		nvidia-nvvm==13.0.88 --hash=sha256:c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0
		nvidia-cuda-runtime==13.0.96 --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
		nvidia-cuda-cccl==13.0.85 --hash=sha256:e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649
	END
}

# The stamp names what was installed, and is written last.
stamp=$prefix/.installed-wheels
if [ -r "$stamp" ] && requirements | cmp -s - "$stamp"; then
	say "nvcc 13.0 is in $prefix already"
	exit
fi
if [ -n "$dry_run" ]; then
	say "would download five pinned wheels and unpack them into $prefix"
	exit
fi
[ "$(uname -sm)" = "Linux x86_64" ] || die "the pinned wheels are for x86-64 Linux only"
command -v g++ >/dev/null || die "g++ is missing"
python3 -m pip --version >/dev/null 2>&1 || die "python3 with pip is missing"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wheels=$cache/wheels
mkdir -p "$wheels"
requirements >"$work/requirements.txt"
say "downloading the CUDA 13.0 compiler to $wheels"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
	--platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 \
	--platform manylinux2010_x86_64 --platform manylinux_2_12_x86_64 \
	--find-links "$wheels" --dest "$wheels" --require-hashes -r "$work/requirements.txt"

# Unpack exactly the pinned versions, as the folder may hold others.
python3 - "$work/requirements.txt" "$wheels" "$work/unpacked" <<-'END'
	import glob, sys, zipfile
	requirements, wheels, target = sys.argv[1:]
	for line in open(requirements):
	    name, version = line.split()[0].split("==")
	    (wheel,) = glob.glob(f"{wheels}/{name.replace('-', '_')}-{version}-*.whl")
	    zipfile.ZipFile(wheel).extractall(target)
END
rm -rf "$prefix"
mkdir -p "$(dirname "$prefix")"
mv "$work/unpacked/nvidia/cu13" "$prefix"

# What the wheels lack: execute bits, and the folder lib64 where nvcc.profile looks for libraries.
find "$prefix/bin" "$prefix/nvvm/bin" -maxdepth 1 -type f ! -name '*.profile' -exec chmod 755 {} +
ln -sfn lib "$prefix/lib64"

# Prove that it works: from CUDA C++ to a program with PTX inside.
cat >"$work/probe.cu" <<-'END'
	__global__ void store(int *target) { *target = threadIdx.x; }
	int main() { store<<<1, 1>>>(nullptr); }
END
"$prefix/bin/nvcc" -gencode arch=compute_80,code=compute_80 "$work/probe.cu" -o "$work/probe" || die "nvcc does not work"
cp "$work/requirements.txt" "$stamp"
say "$("$prefix/bin/nvcc" --version | grep release) is in $prefix"
