#!/bin/bash
# Runs what PyTorch's and CuPy's libraries ask of the driver, where there is no GPU: their wheels from PyPI (several GB)
# under `hetckpt run`, on a stand-in for NVIDIA's driver that has memory but runs no kernels.
#
#   frameworks-test.sh [--dry-run]
#
# So it says that every call is answered, and that a training program comes back after a dump; not that results are
# right, which only `e2e/gpu/frameworks/checks.py` on a GPU does. Works in the source tree after `make build`. The wheels
# go to target/frameworks and stay there.
set -euo pipefail

say() { echo "== $*"; }
die() { echo "frameworks-test: $*" >&2; exit 1; }

case ${1:-} in
'') dry_run='' ;;
--dry-run) dry_run=1 ;;
--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
*) die "unknown argument $1 (see --help)" ;;
esac

here=$(dirname "$(realpath "$0")")
target=${CARGO_TARGET_DIR:-$(dirname "$here")/target}
: "${HETCKPT_STAGE:=$target/stage}" "${HETCKPT_CRIU:=$HOME/.cache/hetckpt/criu/bin/criu}"
export HETCKPT_STAGE HETCKPT_CRIU HETCKPT_CUDA_DRIVER=$target/release/libstand_in_driver.so
hetckpt=$HETCKPT_STAGE/bin/hetckpt frameworks=$here/gpu/frameworks python=$target/frameworks/bin/python
[ -z "$dry_run" ] || { echo "would install $(paste -sd' ' "$frameworks/requirements.txt") in $target/frameworks"; exit; }
for needed in "$hetckpt" "$HETCKPT_CUDA_DRIVER"; do
	[ -e "$needed" ] || die "$needed is missing (make build)"
done

[ -x "$python" ] || python3 -m venv "$target/frameworks"
"$python" -m pip install --quiet --disable-pip-version-check -r "$frameworks/requirements.txt"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HETCKPT_RUNTIME_DIR=$work/run
mkdir -m 700 "$HETCKPT_RUNTIME_DIR"

say "what libraries ask for"
mapfile -t checks < <("$python" "$frameworks/checks.py" --list | grep -E '^(torch|triton|cupy)\.')
"$hetckpt" run --device cuda -- "$python" "$frameworks/checks.py" --jobs 2 "${checks[@]}"

say "a training program is dumped and restored"
"$hetckpt" run --device cuda --pid-file "$work/pid" -- \
	"$python" "$frameworks/train.py" --steps 200 --pause 0.1 >"$work/before" 2>"$work/err" &
supervisor=$!
until [ "$(wc -l <"$work/before")" -ge 10 ]; do
	kill -0 "$supervisor" 2>/dev/null || die "it ended early: $(tail -n 3 "$work/err")"
	sleep 0.2
done
"$hetckpt" dump --pid "$(cat "$work/pid")" -o "$work/train.hetsnap"
wait "$supervisor" || true
"$hetckpt" restore --own-stdio --device cuda "$work/train.hetsnap" >"$work/after"
# Each step once, in order.
cat "$work/before" "$work/after" | awk '$1 != NR - 1 { exit 1 } END { if (NR != 200) exit 1 }' || die "steps are missing"
say "passed"
