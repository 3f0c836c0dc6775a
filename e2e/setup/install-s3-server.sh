#!/bin/bash
# Installs s3s-fs, an S3 server over a folder, which tests of the snapshot store start, in a folder of its own.
#
#   install-s3-server.sh [--dry-run]
#
# The folder is $HETCKPT_CACHE/s3-server, and HETCKPT_CACHE is ~/.cache/hetckpt. It is built from the crates.io package, which takes some minutes.
set -euo pipefail

version=0.14.1
folder=${HETCKPT_CACHE:-$HOME/.cache/hetckpt}/s3-server
case ${1:-} in
--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
--dry-run) [ -x "$folder/bin/s3s-fs" ] || echo "install-s3-server: would build s3s-fs $version in $folder" && exit ;;
'') ;;
*) echo "install-s3-server: unknown argument $1 (see --help)" >&2 && exit 1 ;;
esac
[ -x "$folder/bin/s3s-fs" ] && exit
echo "install-s3-server: building s3s-fs $version in $folder"
cargo install --quiet --locked --root "$folder" --version "$version" --features binary s3s-fs
