#!/bin/bash
# MoM's action `restart`: becomes the task of a job that checkpoint.sh has stored. In mom_priv/config:
#
#   $action restart 60 !/usr/local/lib/hetckpt/pbs/restart.sh %jobid %login %path
#   $restart_transmogrify True
#
#   restart.sh [--dry-run] JOBID USER FOLDER
#
# PBS has closed stdin and the outputs of this: they become the job's files in PBS_HOME's spool.
set -u

dry_run=''
case ${1:-} in
--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
--dry-run) dry_run=1 && shift ;;
esac
[ $# = 3 ] || exit 2
id=$1 user=$2 folder=$3
spool=${PBS_HOME:-/var/spool/pbs}/spool

mapfile -d '' -t command <"$folder/command" && mapfile -d '' -t variables <"$folder/environment" || exit 1
# What PBS says of this run counts more than what it said of the first.
mapfile -d '' -t own < <(env -0 | grep -z '^PBS_')
if [ -n "$dry_run" ]; then
	echo "would run for $user in $(cat "$folder/cwd"): ${command[*]}"
	exit
fi

cd "$(cat "$folder/cwd")" || exit 1
become=(setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups)
[ "$(id -u)" != "$(id -u "$user")" ] || become=()
exec </dev/null >>"$spool/$id.OU" 2>&1
exec > >(trap '' TERM USR1 && exec cat) 2>&1
exec "${become[@]}" env -i "${variables[@]}" "${own[@]}" "${command[@]}"
