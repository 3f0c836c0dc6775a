#!/bin/bash
# Trains networks with PyTorch on an NVIDIA GPU, dumps and kills the training at random moments, restores it on that GPU
# or another, and compares each step's loss to the bit with an undisturbed run's.
#
#   training.sh [--dry-run] [--moments N] [--steps N] [--to DEVICE] [--cuda-checkpoint FILE] [KIND...]
#
# KIND: transformer cnn transformer-graph cnn-graph (all of them, side by side), each N times (5). DEVICE: where each
# is restored, such as cuda:1 (cuda:0, where they begin). With the path of NVIDIA's `cuda-checkpoint` it does the same
# by that and CRIU, one program after another, once a kind. A dump begins with the files that it carries, which takes
# seconds with PyTorch's libraries: moments are in the first third of a run. Times go to standard output and, where
# OUT names a folder, as JSON lines to $OUT/training.jsonl. HETCKPT_SEED repeats moments. Works in the source tree
# after `make build`, or from a bundle; needs root and PyTorch.
set -euo pipefail

say() { echo "== $*"; }
die() { echo "training: $*" >&2; exit 1; }

kinds=() moments=5 steps=900 dry_run='' peer='' to=cuda:0
while [ $# -gt 0 ]; do
	case $1 in
	--dry-run) dry_run=1 ;;
	--moments) moments=${2:?--moments needs a number} && shift ;;
	--to) to=${2:?--to needs a device} && shift ;;
	--steps) steps=${2:?--steps needs a number} && shift ;;
	--cuda-checkpoint) peer=${2:?--cuda-checkpoint needs a file} && shift ;;
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	transformer | cnn | transformer-graph | cnn-graph) kinds+=("$1") ;;
	*) die "unknown argument $1 (see --help)" ;;
	esac
	shift
done
[ ${#kinds[@]} != 0 ] || kinds=(transformer cnn transformer-graph cnn-graph)
[ -z "$dry_run" ] || { echo "would train ${kinds[*]}, $moments times each"; exit; }

# shellcheck source=e2e/gpu/measuring.sh
. "$(dirname "$(realpath "$0")")/measuring.sh"
train=$here/frameworks/train.py
results=${OUT:+$OUT/training.jsonl}
mkdir -m 700 "$HETCKPT_RUNTIME_DIR"
: "${HETCKPT_SEED:=$RANDOM$RANDOM}"
RANDOM=$((HETCKPT_SEED % 32768))
say "HETCKPT_SEED=$HETCKPT_SEED"

record() { echo "$1" | tee -a "${results:-/dev/null}"; } # one line of JSON
seconds() { awk "BEGIN { printf \"%.2f\", $2 - $1 }"; }

# Sets `program` to what trains a kind.
trains() { # KIND
	program=(python3 "$train" --model "${1%-graph}" --steps "$steps" --loader --pause 0.02)
	[ "$1" = "${1%-graph}" ] || program+=(--graph)
}

# Waits until a training has printed so many steps, or has ended.
await_steps() { # FILE STEPS PID
	until [ "$(wc -l <"$1")" -ge "$2" ]; do
		kill -0 "$3" 2>/dev/null || return 1
		sleep 0.02
	done
}

one_moment() { # KIND NUMBER STEPS DELAY
	local kind=$1 at=$work/$1.$2 supervisor began dumped program
	trains "$kind"
	"$hetckpt" run --device cuda:0 --pid-file "$at.pid" -- "${program[@]}" >"$at.before" 2>"$at.err" &
	supervisor=$!
	await_steps "$at.before" "$3" "$supervisor" || { tail -n 5 "$at.err"; return 1; }
	sleep "$4"
	began=$EPOCHREALTIME
	"$hetckpt" dump --pid "$(cat "$at.pid")" -o "$at.hetsnap" 2>"$at.dump" || { tail -n 5 "$at.dump"; return 1; }
	dumped=$EPOCHREALTIME
	wait "$supervisor" || true
	"$hetckpt" restore --own-stdio --device "$to" "$at.hetsnap" --timings "$at.restore" >"$at.after" 2>"$at.restore.err" ||
		{ tail -n 5 "$at.restore.err"; return 1; }
	cat "$at.before" "$at.after" >"$at.all"
	cmp "$at.all" "$work/$kind.undisturbed" || return 1
	record "{\"kind\": \"$kind\", \"after_steps\": $(wc -l <"$at.before"), \"dump_s\": $(seconds "$began" "$dumped"), \"restore_s\": $(sed -n 's/.*"total": *\([0-9.]*\).*/\1/p' "$at.restore" | head -n 1), \"archive_bytes\": $(stat -c %s "$at.hetsnap")}"
	rm -f "$at.hetsnap"
}

one_kind() { # KIND SEED
	local kind=$1 number program
	RANDOM=$2
	trains "$kind"
	"${program[@]}" >"$work/$kind.native" 2>"$work/$kind.err" || { tail -n 5 "$work/$kind.err"; return 1; }
	"$hetckpt" run --device cuda:0 -- "${program[@]}" >"$work/$kind.undisturbed" 2>"$work/$kind.err" ||
		{ tail -n 5 "$work/$kind.err"; return 1; }
	[ "$(wc -l <"$work/$kind.undisturbed")" = "$steps" ] || { echo "$kind: steps are missing"; return 1; }
	cmp "$work/$kind.native" "$work/$kind.undisturbed" || echo "$kind: other losses than natively"
	for number in $(seq "$moments"); do
		one_moment "$kind" "$number" $((RANDOM % (steps / 3) + 1)) "0.0$((RANDOM % 90 + 10))" ||
			{ echo "$kind, moment $number: failed"; return 1; }
	done
}

# The same by NVIDIA's tool and CRIU, without us.
peer() { # KIND
	local at=$work/$1.peer pid program began locked dumped restored
	trains "$1"
	mkdir "$at.images"
	setsid "${program[@]}" >"$at.out" 2>"$at.err" </dev/null &
	pid=$!
	await_steps "$at.out" $((steps / 3)) "$pid" || return 1
	began=$EPOCHREALTIME
	"$peer" --toggle --pid "$pid" || return 1
	locked=$EPOCHREALTIME
	"$HETCKPT_CRIU" dump -t "$pid" -D "$at.images" --shell-job --file-locks --tcp-established -o dump.log || { tail -n 3 "$at.images/dump.log"; return 1; }
	dumped=$EPOCHREALTIME
	wait "$pid" || true
	"$HETCKPT_CRIU" restore -D "$at.images" --shell-job --file-locks --tcp-established --restore-detached -o restore.log || { tail -n 3 "$at.images/restore.log"; return 1; }
	restored=$EPOCHREALTIME
	"$peer" --toggle --pid "$pid" || return 1
	record "{\"kind\": \"$1\", \"by\": \"cuda-checkpoint\", \"checkpoint_s\": $(seconds "$began" "$locked"), \"dump_s\": $(seconds "$began" "$dumped"), \"restore_s\": $(seconds "$dumped" "$EPOCHREALTIME"), \"toggle_back_s\": $(seconds "$restored" "$EPOCHREALTIME"), \"image_bytes\": $(du -sb "$at.images" | cut -f 1)}"
	kill -9 -- "-$pid" 2>/dev/null || true
	rm -rf "$at.images"
}

pids=() failed=()
for kind in "${kinds[@]}"; do
	one_kind "$kind" $RANDOM &
	pids+=($!)
done
for i in "${!pids[@]}"; do wait "${pids[i]}" || failed+=("${kinds[i]}"); done
if [ -n "$peer" ]; then
	say "by cuda-checkpoint and CRIU"
	for kind in "${kinds[@]}"; do peer "$kind" || say "$kind: cuda-checkpoint and CRIU did not do it"; done
fi
[ ${#failed[@]} = 0 ] || die "failed: ${failed[*]}"
say "all losses as in undisturbed runs"
