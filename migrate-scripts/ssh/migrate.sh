#!/usr/bin/env bash
# Moves a running program to another node over ssh: dump here, copy, restore there.
# The archive is kept on both nodes until the restore has succeeded, so nothing is lost if a step fails.
set -euo pipefail

usage() {
	cat <<-'END'
		usage: migrate.sh [options] PID HOST

		Dumps process PID with hetckpt, copies the archive to HOST and restores it there, detached.
		Both nodes need hetckpt, CRIU and the same program and library files at the same paths.

		  --device DEVICE       device to resume on (default auto)
		  --remote-shell CMD    how to run a command on HOST (default ssh)
		  --remote-hetckpt CMD  hetckpt on HOST (default hetckpt)
		  --folder DIR          where archives are put on both nodes (default /var/tmp)
		  --dry-run             say what would be done
		  --help                this text

		Prints the process id on HOST. Exit status: 0 moved; 1 not dumped, the program runs on here; 2 wrong usage;
		4 dumped but not restored: the message names the archive to restore by hand.
	END
}

die() {
	echo "migrate: $2" >&2
	exit "$1"
}

device=auto shell=ssh remote_hetckpt=hetckpt folder=/var/tmp dry_run=
words=()
while [ $# -gt 0 ]; do
	case $1 in
	--device | --remote-shell | --remote-hetckpt | --folder)
		[ $# -ge 2 ] || die 2 "$1 needs a value"
		case $1 in
		--device) device=$2 ;;
		--remote-shell) shell=$2 ;;
		--remote-hetckpt) remote_hetckpt=$2 ;;
		--folder) folder=$2 ;;
		esac
		shift 2
		;;
	--dry-run) dry_run=1 && shift ;;
	--help) usage && exit 0 ;;
	-*) die 2 "unknown option $1 (--help lists them)" ;;
	*) words+=("$1") && shift ;;
	esac
done
[ ${#words[@]} -eq 2 ] || die 2 "a process id and a host are needed (--help)"
pid=${words[0]} host=${words[1]}
[[ $pid =~ ^[0-9]+$ ]] || die 2 "\`$pid\` is no process id"

hetckpt=${HETCKPT:-hetckpt}
archive=$folder/hetckpt-$(hostname)-$pid.hetsnap

# The remote shell is a command with arguments, as in rsync's --rsh.
read -ra remote <<<"$shell"
on_host() { "${remote[@]}" "$host" "$1"; }

restore="$remote_hetckpt restore --detach --device $(printf %q "$device") $(printf %q "$archive")"
if [ -n "$dry_run" ]; then
	echo "$hetckpt dump --pid $pid --output $archive"
	echo "copy $archive to $host"
	echo "on $host: $restore"
	exit 0
fi

on_host "$remote_hetckpt --version" >/dev/null || die 1 "hetckpt does not run on $host; the program runs on here"
"$hetckpt" dump --pid "$pid" --output "$archive" || die 1 "the program was not dumped and runs on here"
by_hand="it is stored in $archive: restore it with \`hetckpt restore $archive\`, on any node"
on_host "umask 077 && cat >$(printf %q "$archive.part") && mv $(printf %q "$archive.part") $(printf %q "$archive")" <"$archive" ||
	die 4 "the archive could not be copied to $host; $by_hand"
new_pid=$(on_host "$restore") || die 4 "$host could not restore the program; $by_hand"
on_host "rm -f $(printf %q "$archive")" || true
rm -f "$archive"
echo "$new_pid"
