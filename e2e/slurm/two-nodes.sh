#!/bin/bash
# A Slurm cluster of two nodes on one machine, for tests of preemption.
#
#   two-nodes.sh up       start it
#   two-nodes.sh env      print what client commands need in their environment
#   two-nodes.sh kill N   kill all processes of node N at once, as a power failure does
#   two-nodes.sh start N  start that node again
#   two-nodes.sh down     cancel all jobs, stop it, remove its folder
#
# Needs root and Slurm's packages (../setup/install-slurm.sh). It takes no systemd, no cgroups, and no network but loopback. Everything
# lies in one folder.
#
# Node n1 has one GPU of type nvidia for Slurm, node n2 one of type cpu. Each node has process ids, /dev/shm and /var/tmp of
# its own. Jobs in the partition `high` preempt those in `low`, which are queued again.
#
# From the environment:
#   CLUSTER_FOLDER     folder of the cluster (needed)
#   CLUSTER_PORT       slurmctld's port; the nodes have the next two, slurmdbd the one after them (16817)
#   CLUSTER_GRACE      GraceTime of the partition `low`, seconds (20)
#   CLUSTER_KILL_WAIT  KillWait, seconds; Slurm takes no less than 5 (5)
#   CLUSTER_SIGNALS    1: a preempted job gets the signal of its --signal at once (1)
#   CLUSTER_ACCOUNTING 1: with slurmdbd and a database of its own (0)
#   CLUSTER_QOS        1: jobs of the quality of service `high` preempt those of `low`, which have GraceTime, and
#                      partitions say nothing of it; needs CLUSTER_ACCOUNTING (0)
#   CLUSTER_ROOT       folder with another Slurm, made by newer-slurm.sh (none: the system's)
set -u

folder=${CLUSTER_FOLDER:?names the folder of the cluster}
port=${CLUSTER_PORT:-16817}
grace=${CLUSTER_GRACE:-20}
export SLURM_CONF=$folder/etc/slurm.conf
# Process id of slurmctld, if it was started here.
controller=
plugins=
if [ -n "${CLUSTER_ROOT:-}" ]; then
	export PATH=$CLUSTER_ROOT/programs:$PATH
	plugins=PluginDir=$(compgen -G "$CLUSTER_ROOT/usr/lib/*/slurm-wlm")
fi

fail() { echo "two-nodes.sh: $*" >&2; exit 1; }

# Process ids are used again: one that was noted is only this cluster's while its command line says so.
is_ours() { tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline" | grep -qs -e "$folder/" -e 'slurmd -D -N'; }

# Since 23.02 the option for signals has another name. Since 24.05 a job that ends in its grace time is PREEMPTED and queued
# again, whatever its exit code; before, it is COMPLETED or FAILED and stays so. (Seen with 22.05, 24.11 and 26.05.)
configure() {
	local version processors signals='' accounting=accounting_storage/none preemption=partition_prio
	local low="PreemptMode=REQUEUE GraceTime=$grace" high=PreemptMode=OFF
	version=$(slurmctld -V | sed 's/[^0-9]*\([0-9]*\)\.\([0-9]*\).*/\1\2/')
	processors=$(nproc)
	if [ "${CLUSTER_SIGNALS:-1}" = 1 ]; then
		if [ "$version" -ge 2302 ]; then
			signals=PreemptParameters=send_user_signal
		else
			signals=SlurmctldParameters=preempt_send_user_signal
		fi
	fi
	! has_accounting || accounting="accounting_storage/slurmdbd
		AccountingStorageHost=localhost
		AccountingStoragePort=$((port + 3))
		AccountingStoragePass=$folder/munge/socket"
	if prefers_by_qos; then
		preemption=qos low='' high=''
		accounting+=$'\nAccountingStorageEnforce=associations,qos'
	fi
	cat >"$SLURM_CONF" <<-END
		ClusterName=hetckpt
		SlurmctldHost=localhost(127.0.0.1)
		SlurmctldPort=$port
		SlurmUser=root
		SlurmdUser=root
		AuthType=auth/munge
		AuthInfo=socket=$folder/munge/socket,cred_expire=5
		CredType=cred/munge
		StateSaveLocation=$folder/state
		SlurmdSpoolDir=$folder/spool.%n
		SlurmctldPidFile=$folder/run/slurmctld.pid
		SlurmdPidFile=$folder/run/slurmd.%n.pid
		SlurmctldLogFile=$folder/log/slurmctld.log
		SlurmdLogFile=$folder/log/slurmd.%n.log
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		JobAcctGatherType=jobacct_gather/linux
		AccountingStorageType=$accounting
		$plugins
		SelectType=select/cons_tres
		SelectTypeParameters=CR_Core
		SchedulerType=sched/backfill
		SchedulerParameters=bf_interval=2,sched_interval=2
		PreemptType=preempt/$preemption
		PreemptMode=REQUEUE
		$signals
		JobRequeue=1
		ReturnToService=2
		KillWait=${CLUSTER_KILL_WAIT:-5}
		SlurmdTimeout=10
		MpiDefault=none
		MinJobAge=3600
		PlugStackConfig=$folder/etc/plugstack.conf
		GresTypes=gpu
		NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=$processors Gres=gpu:nvidia:1 Feature=nvidia
		NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=$processors Gres=gpu:cpu:1 Feature=cpu
		PartitionName=low Nodes=n1,n2 Default=YES PriorityTier=1 $low State=UP
		PartitionName=high Nodes=n1,n2 PriorityTier=10 $high State=UP
	END
	# Slurm drops a GPU without a file, which must be a device.
	cat >"$folder/etc/gres.conf" <<-END
		NodeName=n1 Name=gpu Type=nvidia File=$folder/dev/nvidia0 Flags=nvidia_gpu_env
		NodeName=n2 Name=gpu Type=cpu File=$folder/dev/cpu0 Flags=no_gpu_env
	END
	: >"$folder/etc/plugstack.conf"
	if [ "$version" -ge 2405 ]; then
		echo CgroupPlugin=disabled
	elif [ "$version" -lt 2311 ]; then
		# The older plugin wants nothing as long as nobody uses it.
		printf '%s\n' CgroupAutomount=no CgroupPlugin=cgroup/v1
	fi >"$folder/etc/cgroup.conf"
}

has_accounting() { [ "${CLUSTER_ACCOUNTING:-0}" = 1 ]; }
prefers_by_qos() { [ "${CLUSTER_QOS:-0}" = 1 ]; }

# The database has a socket only; slurmdbd's library takes the path of that from the environment.
start_accounting() {
	local base
	base=$(dirname "$(dirname "$(realpath "$(command -v mariadbd)")")")
	export MYSQL_UNIX_PORT=$folder/run/database.socket
	mariadb-install-db --no-defaults --basedir="$base" --datadir="$folder/database" --user=root --skip-test-db \
		--auth-root-authentication-method=normal >"$folder/log/database.install" 2>&1 || fail 'no database is made'
	mariadbd --no-defaults --basedir="$base" --datadir="$folder/database" --user=root --skip-networking \
		--loose-innodb-snapshot-isolation=OFF --socket="$MYSQL_UNIX_PORT" --pid-file="$folder/run/database.pid" \
		</dev/null >"$folder/log/database" 2>&1 &
	for _ in $(seq 200); do
		[ ! -S "$MYSQL_UNIX_PORT" ] || break
		sleep 0.1
	done
	(umask 077 && cat >"$folder/etc/slurmdbd.conf") <<-END
		AuthType=auth/munge
		AuthInfo=socket=$folder/munge/socket
		DbdHost=localhost
		DbdPort=$((port + 3))
		SlurmUser=root
		LogFile=$folder/log/slurmdbd.log
		PidFile=$folder/run/slurmdbd.pid
		StorageType=accounting_storage/mysql
		StorageHost=localhost
		StorageUser=root
		StorageLoc=slurm
		$plugins
	END
	# It finds its configuration beside Slurm's.
	slurmdbd || fail "slurmdbd does not start: see $folder/log"
	for _ in $(seq 200); do
		! sacctmgr --immediate add cluster hetckpt >"$folder/log/sacctmgr" 2>&1 || break
		sleep 0.1
	done
	[ -n "$(sacctmgr --noheader show cluster hetckpt)" ] || fail "slurmdbd does not answer: see $folder/log"
	! prefers_by_qos || make_qualities
}

make_qualities() {
	manage add qos low set PreemptMode=requeue "GraceTime=$grace"
	manage add qos high set Preempt=low
	manage modify cluster hetckpt set qos=low,high defaultqos=low
}

manage() {
	sacctmgr --immediate "$@" >>"$folder/log/sacctmgr" 2>&1 || fail "sacctmgr $*: see $folder/log"
}

# In the foreground, so that it is known how it ends.
start_controller() {
	# shellcheck disable=SC2016
	setsid unshare --mount bash -c 'mount --bind "$1" /etc/hosts && exec slurmctld -D -i -f "$SLURM_CONF"' \
		controller "$folder/etc/hosts" </dev/null >/dev/null 2>"$folder/log/controller" &
	controller=$!
}

# Process 1 of a node is a shell, which takes care of orphans as an init does.
start_node() {
	mkdir -p "$folder/spool.$1"
	# shellcheck disable=SC2016
	setsid unshare --pid --fork --kill-child --mount --uts --ipc --mount-proc bash -c '
		hostname "$1"
		mount --bind "$2" /etc/hosts
		mount -t tmpfs tmpfs /dev/shm
		mount -t tmpfs tmpfs /var/tmp
		slurmd -D -N "$1" -f "$SLURM_CONF" -d "$(command -v slurmstepd)" &
		trap "kill $!" TERM
		while kill -0 $! 2>/dev/null; do wait; done
	' node "$1" "$folder/etc/hosts" </dev/null >/dev/null 2>"$folder/log/node.$1" &
	echo $! >"$folder/run/node.$1.pid"
}

stop_node() {
	local pid
	pid=$(cat "$folder/run/node.$1.pid" 2>/dev/null) || return 0
	rm -f "$folder/run/node.$1.pid"
	# With process 1, all others of its namespace end.
	! is_ours "$pid" || kill -9 "$pid"
}

# Ends a daemon, and waits for that.
stop() {
	local pid
	pid=$(cat "$2" 2>/dev/null) || return 0
	[ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$1" ] || return 0
	kill "$pid"
	for _ in $(seq 200); do
		[ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$1" ] || break
		sleep 0.05
	done
}

wait_for_nodes() {
	local until=$((SECONDS + 60))
	while [ "$SECONDS" -lt "$until" ]; do
		if [ -n "$controller" ] && ! kill -0 "$controller" 2>/dev/null; then
			wait "$controller"
			fail "slurmctld has ended with $?: $(tail -n 3 "$folder/log/slurmctld.log" "$folder/log/controller")"
		fi
		[ "$(sinfo -h -N -p low -t idle,alloc,mix,comp -o %N 2>/dev/null | wc -l)" != "$1" ] || return 0
		sleep 0.1
	done
	sinfo -N -l >&2
	fail "the nodes do not come up: see $folder/log"
}

case ${1:-} in
up)
	[ "$(id -u)" = 0 ] || fail 'run it as root'
	needed=(slurmctld slurmd munged unshare)
	! has_accounting || needed+=(slurmdbd mariadbd mariadb-install-db)
	for command in "${needed[@]}"; do
		command -v "$command" >/dev/null || fail "$command is missing"
	done
	mkdir -p "$folder"/{etc,state,log,run,munge,dev} && chmod 755 "$folder" "$folder/munge"
	[ -e "$folder/dev/nvidia0" ] || mknod "$folder/dev/nvidia0" c 1 3
	[ -e "$folder/dev/cpu0" ] || mknod "$folder/dev/cpu0" c 1 3
	(umask 077 && head -c 128 /dev/urandom >"$folder/munge/key")
	munged --key-file="$folder/munge/key" --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" \
		--log-file="$folder/munge/log" --seed-file="$folder/munge/seed" || fail 'munged does not start'
	configure
	! has_accounting || start_accounting
	# Newer versions look up the host that an srun names, for ten seconds if need be, and meanwhile nothing else.
	{ cat /etc/hosts && echo '127.0.0.1 n1 n2'; } >"$folder/etc/hosts"
	start_controller
	start_node n1
	start_node n2
	wait_for_nodes 2
	;;
env) echo "export SLURM_CONF=$SLURM_CONF${CLUSTER_ROOT:+ PATH=$CLUSTER_ROOT/programs:\$PATH}" ;;
kill) stop_node "$2" ;;
start) start_node "$2" && wait_for_nodes 2 ;;
down)
	[ -d "$folder/run" ] || exit 0
	grep -qs '^ClusterName=hetckpt$' "$SLURM_CONF" || fail "$folder is no folder of a cluster"
	scancel --state=PENDING,RUNNING --user="$(id -un)" 2>/dev/null
	for job in $(squeue -h -o %i 2>/dev/null); do scancel "$job"; done
	for _ in $(seq 50); do
		[ -n "$(squeue -h 2>/dev/null)" ] || break
		sleep 0.1
	done
	stop_node n1
	stop_node n2
	stop slurmctld "$folder/run/slurmctld.pid"
	stop slurmdbd "$folder/run/slurmdbd.pid"
	stop mariadbd "$folder/run/database.pid"
	stop munged "$folder/munge/pid"
	rm -rf -- "$folder"
	;;
*)
	sed -n '2,/^set -u/{/^#/s/^# \{0,1\}//p}' "$0"
	exit 2
	;;
esac
