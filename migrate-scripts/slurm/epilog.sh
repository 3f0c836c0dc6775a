#!/bin/bash
# Slurm's Epilog: ends what is left of a job of hetckpt's. Needed only with ProctrackType=proctrack/linuxproc or pgid: if
# `hetckpt job` itself is killed there (by the out-of-memory killer, for example), its program is no descendant of Slurm's any more
# and outlives the job. With proctrack/cgroup nothing is left.
#
#   Epilog=/usr/local/lib/hetckpt/slurm/epilog.sh     in slurm.conf; or a line of an epilog that you have
#   epilog.sh --dry-run                               shows what it would end, for SLURM_JOB_ID of the user SLURM_JOB_UID
set -u

dry_run=''
case ${1:-} in
--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
--dry-run) dry_run=1 ;;
esac
: "${SLURM_JOB_ID:?is set in epilogs}" "${SLURM_JOB_UID:?is set in epilogs}"

# hetckpt's processes only: with them their namespaces end, and so does the program.
for process in $(pgrep --uid "$SLURM_JOB_UID" '^hetckpt'); do
	tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" | grep -qxs "SLURM_JOB_ID=$SLURM_JOB_ID" || continue
	if [ -n "$dry_run" ]; then echo "would end process $process"; else kill -KILL "$process" 2>/dev/null; fi
done
exit 0
