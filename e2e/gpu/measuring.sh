# shellcheck shell=bash
# What boundary.sh and programs.sh share; they source it. It finds hetckpt, CRIU and the test programs, in the source
# tree or in a bundle, and makes a folder to work in. Wants `die`, and an NVIDIA GPU.
here=$(dirname "$(realpath "$0")")
if [ -d "$here/stage" ]; then
	: "${HETCKPT_STAGE:=$here/stage}" "${HETCKPT_PROGRAMS:=$here/programs}" "${HETCKPT_CRIU:=$here/criu/bin/criu}"
else
	target=${CARGO_TARGET_DIR:-$(dirname "$(dirname "$here")")/target}
	: "${HETCKPT_STAGE:=$target/stage}" "${HETCKPT_PROGRAMS:=$target/e2e/programs}"
	: "${HETCKPT_CRIU:=$HOME/.cache/hetckpt/criu/bin/criu}"
fi
export HETCKPT_STAGE HETCKPT_PROGRAMS HETCKPT_CRIU
hetckpt=$HETCKPT_STAGE/bin/hetckpt
"$hetckpt" devices --json | grep -q '"cuda:0"' || die "no NVIDIA GPU here"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HETCKPT_RUNTIME_DIR=$work/run

# Prints the median of the numbers on standard input.
median() { sort -g | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }

# Puts a libcuda.so.1 into $work/times, from a source beside this file, that stands before the driver's.
wrap_driver() { # SOURCE
	local library
	library=$(ldconfig -p | sed -n 's/.*libcuda\.so\.1 .*x86-64.*=> //p' | head -n 1)
	[ -n "$library" ] || die "where is libcuda.so.1?"
	mkdir -p "$work/times"
	# An empty library whose name is the driver's path: what is linked with it loads the driver from there.
	gcc -shared -x c /dev/null -Wl,-soname,"$library" -o "$work/named.so"
	gcc -O2 -shared -fPIC -DDRIVER="\"$library\"" "$here/$1" -Wl,-soname,libcuda.so.1 -Wl,--no-as-needed \
		"$work/named.so" -o "$work/times/libcuda.so.1" -ldl -lpthread
	ln -sf libcuda.so.1 "$work/times/libcuda.so" # by that name the server looks for it
}
