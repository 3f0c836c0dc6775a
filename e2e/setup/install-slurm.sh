#!/bin/bash
# Installs Slurm and munge, for tests of batch scheduling (e2e/slurm). Tests that lack them are skipped and say so.
#
#   install-slurm.sh [--accounting] [--dry-run]
#
#   --accounting  also slurmdbd and MariaDB's programs, for the test of accounting
#
# Other distributions than Debian and Ubuntu: Fedora has them as slurm-slurmctld, slurm-slurmd and munge. No service is needed.
set -euo pipefail

say() { echo "install-slurm: $*"; }

dry_run='' accounting=
while [ $# -gt 0 ]; do
	case $1 in
	--accounting) accounting=1 ;;
	--dry-run) dry_run=1 ;;
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	*) say "unknown argument $1 (see --help)" >&2 && exit 1 ;;
	esac
	shift
done

missing=()
{ command -v slurmctld && command -v slurmd && command -v sbatch; } >/dev/null || missing+=(slurm-wlm)
command -v munged >/dev/null || missing+=(munge)
if [ -n "$accounting" ]; then
	command -v slurmdbd >/dev/null || missing+=(slurmdbd)
	# Without the package that runs it as a service.
	{ command -v mariadbd && command -v mariadb-install-db; } >/dev/null || missing+=(mariadb-server-core mariadb-client-core)
fi
[ ${#missing[@]} != 0 ] || exit 0

if [ -n "$dry_run" ]; then
	say "would install ${missing[*]}"
elif ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
	say "not installed, so tests will be skipped: ${missing[*]} (--help says what other distributions call them)"
else
	say "installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update
	apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
fi
