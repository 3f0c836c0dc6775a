#!/bin/bash
# Jobs in rootless Podman containers, of a user who is not root: stored on a signal, gone on with in a new container; then
# the same under Slurm, preempted in mid-kernel and resumed on another node.
#
# usage: rootless.sh [--dry-run]
#
# Run it as root, after `make build programs`. It makes a user and a container's root file system, and removes them. It
# is skipped, and says so, where Podman cannot be had. HETCKPT_E2E_CONTAINER names a root file system to use instead.
set -euo pipefail
cd "$(dirname "$0")/../.."

target=${CARGO_TARGET_DIR:-target}
stage=${HETCKPT_STAGE:-$target/stage-dev}
programs=${HETCKPT_PROGRAMS:-$target/e2e/programs}
criu=${HETCKPT_CRIU:-${HETCKPT_CACHE:-$HOME/.cache/hetckpt}/criu/bin/criu}
script=$PWD/migrate-scripts/containers/podman-job.sh
two_nodes=$PWD/e2e/slurm/two-nodes.sh
user=hetckpt-ct

skip() { echo "rootless.sh: skipped: $*" && exit 0; }
fail() { echo "rootless.sh: $*" >&2 && exit 1; }

[ "${1:-}" != --dry-run ] || { echo 'would run a job in Podman containers of a new user, then the same under Slurm'; exit 0; }
[ "$(id -u)" = 0 ] || skip 'it needs root, to make a user'
declare -A packages=([podman]=podman [crun]=crun [newuidmap]=uidmap [fuse-overlayfs]=fuse-overlayfs [mmdebstrap]=mmdebstrap
	[/usr/libexec/podman/catatonit]=catatonit)
missing=()
for command in "${!packages[@]}"; do
	command -v "$command" >/dev/null || missing+=("${packages[$command]}")
done
if [ ${#missing[@]} != 0 ]; then
	command -v apt-get >/dev/null || skip "not installed: ${missing[*]}"
	apt-get -qq update || true
	DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null ||
		skip "cannot be installed: ${missing[*]}"
fi

# crun takes no cgroups of both versions at once, as some machines have them. What is mounted here ends with this.
if [ -z "${ROOTLESS_INSIDE:-}" ]; then
	# shellcheck disable=SC2016
	ROOTLESS_INSIDE=1 exec unshare --mount --propagation private bash -c '
		umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && mount --make-rshared / && exec "$@"
	' rootless.sh "$0" "$@"
fi

# Not below /var/tmp: nodes have one of their own, for Podman's processes.
folder=$(mktemp -d /var/lib/hetckpt-rootless.XXXXXX)
export CLUSTER_FOLDER=$folder/cluster CLUSTER_PORT=${CLUSTER_PORT:-17430}
clean_up() {
	"$two_nodes" down >/dev/null 2>&1 || true
	# Only what runs as the user that was made here.
	for pid in $(pgrep -U "$user"); do kill -9 "$pid" 2>/dev/null || true; done
	userdel "$user" 2>/dev/null || true
	rm -rf -- "$folder" /var/tmp/hetckpt-ct || true
}
trap clean_up EXIT
id "$user" >/dev/null 2>&1 && fail "there is a user $user already"
useradd --no-create-home --home-dir "$folder/home" --shell /bin/bash "$user"
grep -q "^$user:" /etc/subuid || usermod --add-subuids 300000-365535 --add-subgids 300000-365535 "$user"
chmod 755 "$folder"
mkdir "$folder"/{home,work}
cp -r "$stage" "$folder/hetckpt"
cp -r "$programs" "$folder/programs"
mkdir -p "$folder/hetckpt/lib/hetckpt"
cp -rT "$(dirname "$(dirname "$criu")")" "$folder/hetckpt/lib/hetckpt/criu"
install -m 755 "$script" "$folder/podman-job.sh"
chmod -R a+rX "$folder"
if [ -n "${HETCKPT_E2E_CONTAINER:-}" ]; then
	cp -r "$HETCKPT_E2E_CONTAINER" "$folder/image"
else
	mmdebstrap --quiet --variant=minbase "$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)" "$folder/image" >/dev/null ||
		skip 'no root file system for a container can be made (mmdebstrap)'
fi
chown -R "$user:" "$folder"/{home,work,image}

environment=(HOME="$folder/home" USER="$user" XDG_RUNTIME_DIR=/var/tmp/hetckpt-ct PATH="$folder/hetckpt/bin:$PATH")
as_user() { (cd "$folder/work" && exec setpriv --reuid "$user" --regid "$user" --init-groups env -i "${environment[@]}" "$@"); }
# Test containers have no cgroups of their own, since nobody has given any to the user.
job=("$folder/podman-job.sh" --podman --cgroups=disabled --bind "$folder/programs" --job --device=cpu)
program=("$folder/image" -- "$folder/programs/paced" --iterations 2000000)
wait_for() { # WHAT LIMIT_SECONDS COMMAND...
	local what=$1 limit=$2
	shift 2
	for _ in $(seq $((limit * 10))); do
		if "$@"; then return; fi
		sleep 0.1
	done
	tail -n 50 "$folder"/work/*.log "$folder"/work/slurm-* >&2 || true
	fail "$what: not within $limit s"
}
says() { grep -qs "$1" "$2"; }
at_work() { pgrep -U "$user" -f hetckpt-server >/dev/null && pgrep -U "$user" -x paced >/dev/null; }
hurry() { pkill -USR1 -U "$user" -x paced || true; }
has_passed() { hurry; says "digest.*PASS" "$1"; }

as_user mkdir -p -m 700 /var/tmp/hetckpt-ct
as_user podman ps --quiet >/dev/null || skip 'the user may not start containers here (user namespaces, /etc/subuid)'
start() { as_user "${job[@]}" --name alone "${program[@]}" >"$folder/work/$1.log" 2>&1 & }
start first
first=$!
wait_for 'the first run' 60 at_work
sleep 2
# The shell is the script: setpriv and env have become it.
kill -TERM "$(pgrep -U "$user" -f "^bash $folder/podman-job.sh" | head -1)"
code=0
wait "$first" || code=$?
[ "$code" = 75 ] || { cat "$folder/work/first.log" && fail "the first run has ended with $code, not 75"; }
start second
second=$!
wait_for 'the second run' 60 says 'goes on from' "$folder/work/second.log"
wait_for 'the right result' 60 has_passed "$folder/work/second.log"
wait "$second" || fail "the second run has ended with $?"
digest=$(grep -o 'digest.*PASS' "$folder/work/second.log")
echo "rootless.sh: a job in a container was stored and went on in another one ($(podman --version)): $digest"

{ command -v slurmctld && command -v munged; } >/dev/null || skip 'under Slurm: it is not installed'
CLUSTER_GRACE=30 "$two_nodes" up
export SLURM_CONF=$CLUSTER_FOLDER/etc/slurm.conf
printf '#!/bin/bash\nexec' >"$folder/work/batch"
printf ' %q' "${job[@]}" "${program[@]}" >>"$folder/work/batch"
environment+=(SLURM_CONF="$SLURM_CONF")
id=$(as_user sbatch --parsable --exclusive --gres=gpu:1 --signal=B:USR1@60 --requeue --open-mode=append --output=slurm-%j.log batch)
log=$folder/work/slurm-$id.log
wait_for 'the job' 60 at_work
sleep 2
node=$(squeue -h -j "$id" -o %N)
rival=$(sbatch --parsable --partition=high --exclusive --nodelist="$node" --output=/dev/null --wrap 'sleep 600')
runs() { [ "$(squeue -h -j "$1" -o %t)" = R ]; }
wait_for 'the snapshot of the preempted job' 60 says 'hetckpt: snapshot ' "$log"
wait_for 'the other job' 120 runs "$rival"
wait_for 'its second run' 120 says 'goes on from' "$log"
wait_for 'the job again' 120 runs "$id"
[ "$(squeue -h -j "$id" -o %N)" != "$node" ] || fail "it is on $node, which is taken"
wait_for 'the right result under Slurm' 60 has_passed "$log"
says "$digest" "$log" || fail "the result is another one: $(grep digest "$log")"
echo "rootless.sh: under Slurm a preempted job went on on the other node, in another container"
