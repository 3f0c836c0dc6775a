#!/bin/bash
# Installs Open MPI, which tests of jobs with several ranks use. Without it they are skipped, and so is this where
# packages cannot be installed.
#
#   install-mpi.sh [--dry-run]
#
# Other distributions than Debian and Ubuntu: Fedora has it as openmpi-devel, Arch as openmpi. `mpirun` and `mpicxx` must
# be on PATH.
set -euo pipefail

say() { echo "install-mpi: $*"; }

dry_run=
while [ $# -gt 0 ]; do
	case $1 in
	--dry-run) dry_run=1 ;;
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	*) say "unknown argument $1 (see --help)" >&2 && exit 1 ;;
	esac
	shift
done

if command -v mpirun >/dev/null && command -v mpicxx >/dev/null; then
	exit
fi
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
	say "there is no Open MPI: tests with MPI are skipped (--help)"
	exit
fi
if [ -n "$dry_run" ]; then
	say "would install openmpi-bin libopenmpi-dev"
	exit
fi
say "installing openmpi-bin libopenmpi-dev"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install -y --no-install-recommends openmpi-bin libopenmpi-dev >/dev/null
