#!/bin/bash
# Packs all that accept.sh needs into one archive, for a machine with a GPU that has neither Rust nor nvcc nor CRIU.
#
#   bundle.sh [--dry-run] FILE.tar.xz
#
# Build first: `make build programs`. There: unpack, and run hetckpt-bundle/accept.sh as root.
set -euo pipefail

say() { echo "bundle: $*"; }
die() { say "$*" >&2; exit 1; }

dry_run='' output=''
while [ $# -gt 0 ]; do
	case $1 in
	--dry-run) dry_run=1 ;;
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	-*) die "unknown argument $1 (see --help)" ;;
	*) output=$1 ;;
	esac
	shift
done
[ -n "$output" ] || die "name the archive to write (see --help)"

root=$(dirname "$(dirname "$(dirname "$(realpath "$0")")")")
target=${CARGO_TARGET_DIR:-$root/target}
stage=${HETCKPT_STAGE:-$target/stage}
profile=${PROFILE:-release}
built=$target/$profile
[ "$profile" != dev ] || built=$target/debug
programs=${HETCKPT_PROGRAMS:-$target/e2e/programs}
criu=$(dirname "$(dirname "$(realpath "${HETCKPT_CRIU:-$HOME/.cache/hetckpt/criu/bin/criu}")")")
for needed in "$stage/bin/hetckpt" "$programs/spin" "$criu/bin/criu" "$criu/root"; do
	[ -e "$needed" ] || die "$needed is missing (make build programs)"
done
if [ -n "$dry_run" ]; then
	say "would pack $stage, $programs, $criu and the tests into $output"
	exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bundle=$work/hetckpt-bundle
mkdir -p "$bundle/tests"
cp -r "$stage" "$bundle/stage"
cp -r "$programs" "$bundle/programs"
find "$bundle/stage" "$bundle/programs" -type f -exec strip --strip-unneeded {} + 2>/dev/null || true
cp -r "$criu" "$bundle/criu"
cp -r "$root/e2e/gpu/frameworks" "$bundle/frameworks"
cp "$root"/e2e/gpu/{accept,boundary,data,measuring,programs,training}.sh "$root"/e2e/gpu/*.c "$bundle/"
cp -r "$root/e2e/slurm" "$bundle/slurm"
cp "$root/e2e/demo.sh" "$bundle/"
install -s "$built/libstand_in_driver.so" "$bundle/"
(cd "$root" && cargo test --profile "$profile" --locked -p hetckpt-e2e --test e2e --no-run --message-format json 2>/dev/null) |
	sed -n 's/.*"executable":"\([^"]*\/\(e2e\)-[0-9a-f]*\)".*/\1 \2/p' |
	while read -r file name; do install -s "$file" "$bundle/tests/$name"; done
[ -x "$bundle/tests/e2e" ] || die "the tests do not build"
(cd "$root" && cargo test --profile "$profile" --locked -p hetckpt-devices --test gpu_results -p hetckpt-codegen --test opencl_device \
	--no-run --message-format json 2>/dev/null) |
	sed -n 's/.*"executable":"\([^"]*\/\(gpu_results\|opencl_device\)-[0-9a-f]*\)".*/\1 \2/p' |
	while read -r file name; do install -s "$file" "$bundle/tests/$name"; done
(cd "$root" && cargo build --profile "$profile" --locked -q -p hetckpt-devices --example cuda_trial)
install -s "$built/examples/cuda_trial" "$bundle/tests/"
cp -r "${HETCKPT_PTX:-$target/e2e/ptx}" "$bundle/ptx"
tar -C "$work" -c hetckpt-bundle | xz -T0 -3 >"$output"
say "$output: $(du -h "$output" | cut -f 1)"
