#!/bin/bash
# Measures the snapshot store beside rclone: one file up to an S3 server on this machine and down again; then a program
# with as much device memory on the CPU, dumped into the store and restored from there.
#
#   store.sh [--dry-run] [MIB]
#
# MIB is the file's size (4096). Works after `make build programs`, as root. The server is the one of
# e2e/setup/install-s3-server.sh, over a folder in TMPDIR; rclone is Debian's package. Both send parts of 16 MiB, six at a time. Prints times, rates and the most resident memory.
set -euo pipefail

mib=4096
dry_run=
for argument in "$@"; do
	case $argument in
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	--dry-run) dry_run=1 ;;
	*) mib=$argument ;;
	esac
done
root=$(cd "$(dirname "$0")/../.." && pwd)
server=${HETCKPT_CACHE:-$HOME/.cache/hetckpt}/s3-server/bin/s3s-fs
transfer=${CARGO_TARGET_DIR:-$root/target}/release/examples/transfer
[ -z "$dry_run" ] || { echo "store: would send $mib MiB to $server with $transfer and rclone"; exit; }
command -v rclone >/dev/null || { echo 'store: rclone is missing' >&2; exit 1; }
"$root/e2e/setup/install-s3-server.sh"
cargo build --quiet --release -p hetckpt-store --example transfer

scratch=$(mktemp -d)
trap 'kill "$pid" 2>/dev/null || true; rm -rf "$scratch"' EXIT
mkdir -p "$scratch/server/bucket"
port=$((20000 + RANDOM % 10000))
"$server" --host 127.0.0.1 --port "$port" --access-key AKTEST --secret-key SKTEST "$scratch/server" >"$scratch/log" 2>&1 &
pid=$!
export AWS_ACCESS_KEY_ID=AKTEST AWS_SECRET_ACCESS_KEY=SKTEST AWS_ALLOW_HTTP=true AWS_ENDPOINT=http://127.0.0.1:$port
until (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do sleep 0.1; done

head -c "${mib}M" /dev/urandom >"$scratch/file"

# Runs rclone and prints its time and memory.
rclone_s3() {
	local what=$1 start end
	shift
	start=$(date +%s.%N)
	/usr/bin/time -f %M -o "$scratch/memory" env -u AWS_CA_BUNDLE rclone --config /dev/null --s3-provider Other --s3-env-auth \
		--s3-endpoint "$AWS_ENDPOINT" --s3-chunk-size 16M --s3-upload-concurrency 6 --s3-no-check-bucket "$@"
	end=$(date +%s.%N)
	echo "$start $end $mib $(cat "$scratch/memory")" |
		awk -v what="$what" '{ s = $2 - $1; printf "%s: %.2f s, %.0f MB/s, most memory %d MiB\n", what, s, $3 * 1.048576 / s, $4 / 1024 }'
}

for round in 1 2; do
	echo "round $round, hetckpt"
	"$transfer" s3://bucket/hetckpt "$scratch/file"
	cmp "$scratch/file" "$scratch/file.fetched"
	rm "$scratch/file.fetched"
	echo "round $round, rclone"
	rclone_s3 up copyto "$scratch/file" ":s3:bucket/rclone-$round"
	rclone_s3 down copyto ":s3:bucket/rclone-$round" "$scratch/fetched"
	cmp "$scratch/file" "$scratch/fetched"
	rm "$scratch/fetched"
done

# Dumped, and restored until the program runs, without a file on this machine.
target=${CARGO_TARGET_DIR:-$root/target}
export HETCKPT_STAGE=${HETCKPT_STAGE:-$target/stage}
export HETCKPT_CRIU=${HETCKPT_CRIU:-${HETCKPT_CACHE:-$HOME/.cache/hetckpt}/criu/bin/criu}
hetckpt=$HETCKPT_STAGE/bin/hetckpt
program=${HETCKPT_PROGRAMS:-$target/e2e/programs}/memory_hog
timed() { # WHAT COMMAND...
	local what=$1 start end
	shift
	start=$(date +%s.%N)
	/usr/bin/time -f %M -o "$scratch/memory" "$@" >"$scratch/said" 2>&1 || { cat "$scratch/said" >&2 && exit 1; }
	end=$(date +%s.%N)
	echo "$start $end $mib $(tail -n 1 "$scratch/memory")" |
		awk -v what="$what" '{ s = $2 - $1; printf "%s: %.2f s, %.0f MB/s, most memory %d MiB\n", what, s, $3 * 1.048576 / s, $4 / 1024 }'
}
for round in 1 2; do
	"$hetckpt" run --device cpu --pid-file "$scratch/pid" -- "$program" --mib "$mib" --sleeps 1 --iterations 2000000 --progress \
		>"$scratch/out" 2>"$scratch/err" &
	until grep -q launched "$scratch/err"; do sleep 0.1; done
	timed "round $round, dump" "$hetckpt" dump --pid "$(cat "$scratch/pid")" -o s3://bucket/job
	wait $! 2>/dev/null || true
	timed "round $round, restore" "$hetckpt" restore --detach --device cpu --pid-file "$scratch/pid" s3://bucket/job
	kill -9 "$(cat "$scratch/pid")"
	"$hetckpt" store rm --all --store s3://bucket job 2>/dev/null
done
