#!/bin/bash
# Installs cargo-machete, which finds dependencies that nothing uses, in a folder of its own.
#
#   install-machete.sh [--dry-run]
#
# The folder is $HETCKPT_CACHE/machete, and HETCKPT_CACHE is ~/.cache/hetckpt. It is built from the crates.io package, which takes a minute.
set -euo pipefail

version=0.9.2
folder=${HETCKPT_CACHE:-$HOME/.cache/hetckpt}/machete
case ${1:-} in
--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
--dry-run) [ -x "$folder/bin/cargo-machete" ] || echo "install-machete: would build cargo-machete $version in $folder" && exit ;;
'') ;;
*) echo "install-machete: unknown argument $1 (see --help)" >&2 && exit 1 ;;
esac
[ -x "$folder/bin/cargo-machete" ] && exit
echo "install-machete: building cargo-machete $version in $folder"
cargo install --quiet --locked --root "$folder" --version "$version" cargo-machete
