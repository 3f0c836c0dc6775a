#!/bin/bash
# Installs CRIU 4.2 or newer in a folder of its own, beside whatever CRIU the system has.
#
#   install-criu.sh [--prefix DIR] [--min VERSION] [--suites "SUITE..."] [--dry-run]
#
#   --prefix DIR   where to install; DIR/bin/criu is the program
#                  (default: $HETCKPT_CACHE/criu, and HETCKPT_CACHE is ~/.cache/hetckpt)
#   --min VERSION  oldest version that will do (default 4.2)
#   --suites LIST  Debian suites to look in, in this order (default "forky sid")
#   --dry-run      say what would be done
#
# The oldest version that will do, 4.1, which some tests run with: --min 4.1 --suites trixie, with a prefix of its own.
#
# Why not the package: Debian 12 has 3.17, which fails on kernels since 6.13, and a newer package would replace the
# system's C library. So the packages of a newer suite are fetched from the mirror that apt uses already (signatures
# checked as usual), only unpacked, and run through their own dynamic loader. No maintainer script runs; dpkg's
# database and /etc/apt stay as they are.
#
# Other distributions: install CRIU >= 4.2 by their means (Fedora: dnf install criu; else build it from source) and put
# it on PATH or in HETCKPT_CRIU; this script is then not needed.
set -euo pipefail

say() { echo "install-criu: $*"; }
die() { say "$*" >&2; exit 1; }

cache=${HETCKPT_CACHE:-$HOME/.cache/hetckpt}
prefix=$cache/criu min=4.2 suites="forky sid" dry_run=
while [ $# -gt 0 ]; do
	case $1 in
	--prefix) prefix=${2:?} && shift ;;
	--min) min=${2:?} && shift ;;
	--suites) suites=${2:?} && shift ;;
	--dry-run) dry_run=1 ;;
	--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
	*) die "unknown argument $1 (see --help)" ;;
	esac
	shift
done
prefix=$(realpath -m "$prefix")

# Prints the version of the CRIU given, or nothing.
version_of() { "$1" --version 2>/dev/null | sed -n 's/^Version: //p' || true; }
new_enough() { [ -n "$1" ] && dpkg --compare-versions "$1" ge "$min"; }

command -v apt-get >/dev/null || die "needs apt; elsewhere install CRIU >= $min yourself (see --help)"
have=$(version_of "$prefix/bin/criu")
if new_enough "$have"; then
	say "CRIU $have is in $prefix already"
	exit
fi
if [ -n "$dry_run" ]; then
	say "would unpack CRIU >= $min from the first of '$suites' into $prefix"
	exit
fi

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || die "$keyring is missing: install debian-archive-keyring"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$cache/debs/partial" "$prefix/bin"
touch "$work/status" "$work/preferences"

# apt with sources, lists and package database of its own; proxies and the like still come from /etc/apt. The empty
# database makes every library count as missing, so that all of them are downloaded.
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
	apt-get "${private_lists[@]}" update || die "apt-get update failed"
	mirror=$(mirror_of_apt "${private_lists[@]}")
fi
[ -n "$mirror" ] || die "apt has no Debian archive among its sources; install CRIU >= $min yourself (see --help)"

version=
for suite in $suites; do
	say "looking for CRIU >= $min in Debian $suite"
	echo "deb [signed-by=$keyring] $mirror $suite main" >"$work/sources.list"
	apt-get "${private_apt[@]}" update >"$work/log" 2>&1 || { cat "$work/log" >&2 && continue; }
	version=$(apt-cache "${private_apt[@]}" policy criu | sed -n 's/^ *Candidate: //p')
	! new_enough "$version" || break
	version=
done
[ -n "$version" ] || die "none of '$suites' has CRIU >= $min"

# libgcc-s1 is what a plugin built by rustc needs beside the C library.
apt-get "${private_apt[@]}" --simulate install criu libgcc-s1 |
	sed -n 's/^Inst \([^ ]*\) (\([^ ]*\) .*\[\(.*\)\]).*/\1_\2_\3.deb/p' | sed 's/:/%3a/' >"$work/packages"
apt-get "${private_apt[@]}" -y --download-only install criu libgcc-s1 >"$work/log" 2>&1 ||
	{ cat "$work/log" >&2 && die "the download failed"; }

new=$prefix/root.new
rm -rf "$new"
mkdir -p "$new"/usr/{bin,sbin,lib,lib64}
for dir in bin sbin lib lib64; do ln -s "usr/$dir" "$new/$dir"; done
while read -r package; do # tar, as dpkg-deb -x would replace the links just made by folders
	dpkg-deb --fsys-tarfile "$cache/debs/$package" | tar -x --keep-directory-symlink -C "$new" --exclude=./usr/share
done <"$work/packages"

# Paths below the new root of the program, its loader and its library folders. The starter finds them from its own
# place, so that the folder can be moved.
find_below() { (cd "$new" && compgen -G "$1" | head -n 1); }
program=$(find_below 'usr/*bin/criu') || die "the package holds no criu program"
loader=$(find_below 'usr/lib*/ld-linux*.so.*') || loader=$(find_below 'usr/lib/*/ld-linux*.so.*') || die "no loader found"
libraries="\$root/$(find_below 'usr/lib/*-linux-gnu*'):\$root/usr/lib"
cat >"$prefix/bin/criu.new" <<-END
	#!/bin/sh
	# CRIU $version of Debian $suite, run with the libraries it was built for
	root=\$(cd "\$(dirname "\$(realpath "\$0")")/../root" && pwd)
	exec "\$root/$loader" --library-path "$libraries" "\$root/$program" "\$@"
END
chmod 755 "$prefix/bin/criu.new"
rm -rf "$prefix/root"
mv "$new" "$prefix/root"
mv "$prefix/bin/criu.new" "$prefix/bin/criu"

have=$(version_of "$prefix/bin/criu")
new_enough "$have" || die "the unpacked CRIU does not run"
say "CRIU $have is in $prefix"
[ "$(id -u)" != 0 ] || "$prefix/bin/criu" check || say "this kernel does not do all that CRIU wants (see above)" >&2
