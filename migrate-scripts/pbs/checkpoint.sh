#!/bin/bash
# MoM's action `checkpoint_abort`: has a job stored and ends it. In mom_priv/config, one line:
#
#   $action checkpoint_abort 300 !/usr/local/lib/hetckpt/pbs/checkpoint.sh %jobid %sid %path
#
#   checkpoint.sh [--dry-run] JOBID SID FOLDER
#
# SID is the session of the job's task. The command, its folder and its variables are kept in FOLDER for restart.sh. Exit status:
# 0 if the job is stored and gone; else it goes on, and PBS preempts it in another way.
set -u

dry_run=''
case ${1:-} in
--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
--dry-run) dry_run=1 && shift ;;
esac
[ $# = 3 ] || { echo 'usage: checkpoint.sh [--dry-run] JOBID SID FOLDER (see --help)' >&2 && exit 2; }
id=$1 session=$2 folder=$3

job=$(pgrep --session "$session" --full '^([^ ]*/)?hetckpt job ' | head -n 1)
[ -n "$job" ] || { echo "checkpoint.sh: no \`hetckpt job\` in session $session of job $id" >&2 && exit 1; }
if [ -n "$dry_run" ]; then
	echo "would send SIGUSR1 to process $job and wait for its end"
	exit
fi

umask 077
mkdir -p "$folder" && cat "/proc/$job/cmdline" >"$folder/command" && cat "/proc/$job/environ" >"$folder/environment" &&
	readlink "/proc/$job/cwd" >"$folder/cwd" || exit 1
kill -USR1 "$job" || exit 1
# MoM ends this when the action's time is over. A dump that fails leaves the program running for good.
until [[ $(ps -o stat= -p "$job") = @(|Z*) ]]; do sleep 0.1; done
# The rest of the job's script, if it was not the last command; what writes the last words may end by itself.
for _ in $(seq 10); do
	pgrep --session "$session" >/dev/null || exit 0
	sleep 0.1
done
pkill -KILL --session "$session"
exit 0
