#!/bin/bash
# Unpacks packages of another Debian suite, with all that they need, into a folder. The system stays as it is.
#
#   unpack-suite.sh SUITE FOLDER PACKAGE...
#
# The packages come from the archive that apt uses already, signatures checked as usual. No maintainer script runs.
# dpkg's database and /etc/apt are not changed. Programs in the folder need the dynamic loader in it (../slurm/newer-slurm.sh).
set -euo pipefail

say() { echo "unpack-suite: $*"; }
die() { say "$*" >&2; exit 1; }

case ${1:-} in
--help | '') sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
esac
suite=$1 folder=$(realpath -m "${2:?}")
shift 2
[ $# != 0 ] || die 'no packages are given'
command -v apt-get >/dev/null || die 'needs apt'
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || die "$keyring is missing: install debian-archive-keyring"

cache=${HETCKPT_CACHE:-$HOME/.cache/hetckpt}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$cache/debs/partial"
touch "$work/status" "$work/preferences"

# apt with sources, lists and package database of its own; proxies and the like still come from /etc/apt. In the empty
# database every library is missing, so all of them are downloaded.
private_lists=(-qq -o "Dir::State::lists=$work/lists" -o APT::Sandbox::User=root)
private_apt=(
	"${private_lists[@]}" -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
	-o "Dir::Etc::preferences=$work/preferences" -o Dir::Etc::preferencesparts=/dev/null
	-o "Dir::State::status=$work/status" -o "Dir::State::extended_states=$work/extended" -o Debug::NoLocking=1
	-o "Dir::Cache=$work" -o "Dir::Cache::archives=$cache/debs" -o APT::Keep-Downloaded-Packages=true
	-o APT::Install-Recommends=false -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
	-o APT::Update::Post-Invoke= -o APT::Update::Post-Invoke-Success= -o DPkg::Post-Invoke=
)

# The Debian main archive that this machine's apt reads, security archives aside.
# shellcheck disable=SC2016  # apt expands these, not the shell
mirror_of_apt() {
	apt-get "$@" indextargets --format '$(REPO_URI) $(COMPONENT) $(RELEASE) $(ORIGIN)' 'Created-By: Packages' |
		awk '$2 == "main" && $3 !~ /security/ && $4 == "Debian" && $1 !~ /^cdrom/ && !n++ { print $1 }'
}
mirror=$(mirror_of_apt -qq)
if [ -z "$mirror" ]; then # apt knows only what it has lists of
	apt-get "${private_lists[@]}" update || die 'apt-get update failed'
	mirror=$(mirror_of_apt "${private_lists[@]}")
fi
[ -n "$mirror" ] || die 'apt has no Debian archive among its sources'

echo "deb [signed-by=$keyring] $mirror $suite main" >"$work/sources.list"
apt-get "${private_apt[@]}" update >"$work/log" 2>&1 || { cat "$work/log" >&2 && die "there is no Debian $suite"; }
apt-get "${private_apt[@]}" --simulate install "$@" |
	sed -n 's/^Inst \([^ ]*\) (\([^ ]*\) .*\[\(.*\)\]).*/\1_\2_\3.deb/p' | sed 's/:/%3a/' >"$work/packages"
apt-get "${private_apt[@]}" -y --download-only install "$@" >"$work/log" 2>&1 ||
	{ cat "$work/log" >&2 && die 'the download failed'; }

# tar follows the links, where dpkg-deb would replace them by folders.
mkdir -p "$folder"/usr/{bin,sbin,lib,lib64}
for name in bin sbin lib lib64; do ln -sfn "usr/$name" "$folder/$name"; done
while read -r package; do
	dpkg-deb --fsys-tarfile "$cache/debs/$package" |
		tar -x --keep-directory-symlink -C "$folder" --exclude=./usr/share/{doc,man,locale,perl}
done <"$work/packages"
