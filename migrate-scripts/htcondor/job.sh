#!/bin/bash
# The executable of a job of HTCondor's: stored when it is vacated, and gone on with on the next machine.
#
#   job.sh [--dry-run] PROGRAM ARGUMENT...
#
# A restored program has the working folder of its first run, by path. With a shared file system that is the submit folder.
# Without one, HTCondor makes a folder for each run, with another name each time; then let HETCKPT_WORK name an empty folder that
# every machine has (job.sub: /mnt). This shows the run's folder there, to the job only; it takes a user namespace.
set -u

case ${1:---help} in
--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
--dry-run) shift && echo "would run in ${HETCKPT_WORK:-$PWD}: hetckpt job -- $*" && exit ;;
esac

# HTCondor opens other files for output in each run, and may empty them. A pipe is any run's own.
exec > >(trap '' TERM USR1 && exec cat) 2> >(trap '' TERM USR1 && exec cat >&2)

# Each line becomes the next command: HTCondor signals the process that it has started.
[ -n "${HETCKPT_WORK:-}" ] || exec hetckpt job -- "$@"
# shellcheck disable=SC2016
[ "$(id -u)" != 0 ] || exec unshare --mount bash -c 'mount --bind . "$HETCKPT_WORK" && cd "$HETCKPT_WORK" && exec hetckpt job -- "$@"' job "$@"
# As root there, for the mount; then as the same user again.
uid=$(id -u) gid=$(id -g)
export uid gid
# shellcheck disable=SC2016
exec unshare --user --map-root-user --mount bash -c '
	mount --bind . "$HETCKPT_WORK" && cd "$HETCKPT_WORK" &&
		exec unshare --user --map-user="$uid" --map-group="$gid" -- hetckpt job -- "$@"' job "$@"
