#!/bin/bash
# Unpacks the Slurm of another Debian suite into a folder, for tests with it. The system and its Slurm stay as they are.
#
#   newer-slurm.sh [--suite SUITE] FOLDER
#
#   --suite SUITE  a Debian suite (trixie)
#
# two-nodes.sh takes the folder from CLUSTER_ROOT, the tests take it from HETCKPT_E2E_SLURM_ROOT.
#
# The programs of Slurm, munge and MariaDB get the folder's loader and libraries. What a job runs is the system's.
# A chroot would give jobs the other suite's C library and tools too; then a failure would not tell Slurm from those.
set -euo pipefail

say() { echo "newer-slurm: $*"; }
die() { say "$*" >&2; exit 1; }

suite=trixie folder=
while [ $# -gt 0 ]; do
	case $1 in
	--suite) suite=${2:?} && shift ;;
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	-*) die "unknown argument $1 (see --help)" ;;
	*) folder=$(realpath -m "$1") ;;
	esac
	shift
done
[ -n "$folder" ] || die 'which folder? (see --help)'

version_of() { "$1/usr/sbin/slurmctld" -V 2>/dev/null || true; }
if [ "$(cat "$folder/suite" 2>/dev/null)" = "$suite" ] && [ -n "$(version_of "$folder")" ]; then
	say "$(version_of "$folder") of $suite is in $folder already"
	exit
fi

# The folder is only replaced by one that is whole, and only if it was made here.
[ ! -e "$folder" ] || [ -e "$folder/suite" ] || [ -z "$(ls -A "$folder")" ] || die "$folder has something else in it"
rm -rf -- "$folder"
"$(dirname "$0")/../setup/unpack-suite.sh" "$suite" "$folder" \
	slurmctld slurmd slurm-client slurmdbd slurm-wlm-mysql-plugin munge mariadb-server-core mariadb-client-core patchelf
# With libmariadb 3.4.10, all that slurmdbd asks for has "more than the maximum" of no columns.
"$(dirname "$0")/../setup/unpack-suite.sh" bookworm "$folder/older" libmariadb3

find_below() { compgen -G "$folder/$1" | head -n 1; }
loader=$(find_below 'usr/lib*/ld-linux*.so.*') || loader=$(find_below 'usr/lib/*/ld-linux*.so.*') || die 'no loader found'
libraries=$(dirname "$(find_below 'usr/lib/*/libc.so.6')")
path=$libraries/slurm-wlm:$libraries
patch() { "$loader" --library-path "$path" "$folder/usr/bin/patchelf" "$@"; }

cd "$folder"
cp -L older/usr/lib/*/libmariadb.so.3 "$libraries/libmariadb.so.3"
rm -r older
# Maintainer scripts make these names.
for program in usr/sbin/*-wlm usr/bin/*-wlm; do
	[ ! -e "$program" ] || ln -sf "$(basename "$program")" "${program%-wlm}"
done
# Apart from other programs in usr/bin, which do not run here.
mkdir -p programs
for file in $(grep -l libslurmfull usr/bin/* usr/sbin/*) usr/sbin/{slurmstepd,munge,mariadb}* \
	usr/bin/{munge,mariadb,my_print,resolveip}*; do
	[ -f "$file" ] || continue
	ln -sf "../$file" programs/
	# Links and scripts have no loader.
	[ -L "$file" ] || ! patch --print-interpreter "$file" >/dev/null 2>&1 ||
		patch --set-interpreter "$loader" --force-rpath --set-rpath "$path" "$file"
done
for file in "$libraries"/slurm-wlm/*.so; do
	[ -L "$file" ] || patch --force-rpath --set-rpath "$path" "$file"
done
[ -n "$(version_of "$folder")" ] || die "the unpacked Slurm does not run: $(usr/sbin/slurmctld -V 2>&1)"
echo "$suite" >"$folder/suite"
say "$(version_of "$folder") of $suite is in $folder"
