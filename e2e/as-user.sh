#!/bin/bash
# Runs end-to-end tests as a user who is not root.
#
# usage: as-user.sh [PART_OF_A_NAME...]     (default: all that root is not needed for)
#
# HETCKPT_E2E_USER is the user (nobody). What the tests need is copied to where that user may read it; run as root, after
# `make build programs`. Root builds the nodes and networks of the last two; what runs on them is the user's. The
# suite soak is left out.
set -euo pipefail
cd "$(dirname "$0")/.."

user=${HETCKPT_E2E_USER:-nobody}
target=${CARGO_TARGET_DIR:-target}
stage=${HETCKPT_STAGE:-$target/stage-dev}
programs=${HETCKPT_PROGRAMS:-$target/e2e/programs}
criu=${HETCKPT_CRIU:-${HETCKPT_CACHE:-$HOME/.cache/hetckpt}/criu/bin/criu}

if [ "$(id -u)" != 0 ]; then
	echo 'as-user.sh: run it as root, which can become another user; as that user, run the suites themselves' >&2
	exit 2
fi
if ! setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups \
	unshare --user --map-current-user --pid --fork --mount-proc true 2>/dev/null; then
	echo "as-user.sh: skipped: $user may make no namespaces here" >&2
	exit 0
fi

# Not below /tmp, of which nodes have one of their own.
copy=$(mktemp -d /var/tmp/hetckpt-user.XXXXXX)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/home" "$copy/state"
cp -r "$stage" "$copy/stage"
cp -r "$programs" "$copy/programs"
# The program with its libraries beside it, as setup/install-criu.sh leaves it.
cp -r "$(dirname "$criu")/.." "$copy/criu"
# Calibration: the programs are as fast for one user as for another.
cp -r "$target/e2e/state/." "$copy/state" 2>/dev/null || true
chmod -R a+rX "$copy"
chown -R "$user" "$copy/home" "$copy/state"

binary=$("${CARGO:-cargo}" test --profile "${PROFILE:-dev}" --locked --workspace --test e2e --no-run 2>&1 | sed -n 's/.*(\(.*\))$/\1/p' | tail -1)
install -m 755 "$binary" "$copy/e2e"

tests() { # ENVIRONMENT-OR-COMMAND... -- ARGUMENTS...: the tests below that
	local as_user=()
	while [ "$1" != -- ]; do as_user+=("$1") && shift; done
	shift
	(
		cd "$copy/home"
		exec env -u XDG_RUNTIME_DIR -u HETCKPT_RUNTIME_DIR -u HETCKPT_CACHE_DIR -u CARGO_TARGET_DIR \
			HOME="$copy/home" PATH="$copy/stage/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
			HETCKPT_STAGE="$copy/stage" HETCKPT_PROGRAMS="$copy/programs" HETCKPT_CRIU="$copy/criu/bin/criu" \
			HETCKPT_E2E_STATE="$copy/state" \
			"${as_user[@]}" "$copy/e2e" "$@"
	)
}

status=0
tests setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups -- \
	--skip nodes:: --skip migration:: --skip soak:: "$@" || status=1
tests HETCKPT_E2E_USER="$user" -- --skip functional:: --skip trees:: --skip faults:: --skip soak:: "$@" || status=1
exit $status
