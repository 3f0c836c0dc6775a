#!/usr/bin/env bash
# Moves a running program to another node over ssh: dump here, copy, restore there.
# The archive is kept on both nodes until the restore has succeeded, so nothing is lost if a step fails. On both it lies in a folder
# of its own that only its owner can enter: it holds the program's memory, and what is restored is what lies there.
set -euo pipefail

usage() {
	cat <<-'END'
		usage: migrate.sh [options] PID HOST

		Dumps process PID with hetckpt, copies the archive to HOST and restores it there, detached.
		Both nodes need hetckpt and CRIU. The program's own file and its libraries go along in the archive; files that it
		has open must be there.

		  --device DEVICE       device to resume on (default auto)
		  --remote-shell CMD    how to run a command on HOST (default ssh)
		  --remote-hetckpt CMD  hetckpt on HOST (default hetckpt)
		  --folder DIR          where a folder for the archive is made on both nodes (default /var/tmp)
		  --dry-run             say what would be done
		  --help                this text

		Prints the process id on HOST. Where the program wrote to a pipe, as under `hetckpt run`, its output goes on in the
		file output of the folder there. Exit status: 0 moved; 1 not dumped, the program runs on here; 2 wrong usage;
		4 dumped but not restored: the message names the archive to restore by hand; 5 dumped, and not known whether
		restored, because the connection broke: the message says how to look.
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
template=$folder/hetckpt-XXXXXXXXXX

# The remote shell is a command with arguments, as in rsync's --rsh.
read -ra remote <<<"$shell"
on_host() { "${remote[@]}" "$host" "$1"; }
restore_of() { echo "$remote_hetckpt restore --detach --device $(printf %q "$device") $(printf %q "$1/job.hetsnap")"; }

if [ -n "$dry_run" ]; then
	echo "here, and on $host: mktemp -d $template"
	echo "$hetckpt dump --pid $pid --output $template/job.hetsnap"
	echo "copy it to $host, into the folder there"
	echo "on $host: $(restore_of "$template")"
	exit 0
fi

# mktemp makes a folder that was not there before and that nobody else can enter.
there=$(on_host "$remote_hetckpt --version >/dev/null && mktemp -d $(printf %q "$template")" </dev/null) ||
	die 1 "hetckpt does not run on $host, or no folder can be made in $folder there; the program runs on here"
[[ $there == "${template%XXXXXXXXXX}"* && $there != *$'\n'* ]] ||
	die 1 "$host names no folder in $folder but \`$there\`; the program runs on here"
here=$(mktemp -d "$template") || die 1 "no folder can be made in $folder; the program runs on here"
archive=$here/job.hetsnap
in_there=$(printf %q "$there")

by_hand="it is stored in $archive: restore it with \`hetckpt restore $archive\`, on any node"
# A signal waits for the end of the dump, which hears of it too where it comes from a terminal.
interrupted=
trap 'interrupted=1' HUP INT TERM
if ! "$hetckpt" dump --pid "$pid" --output "$archive"; then
	# Whoever kills the dump when the archive is complete ends the program all the same.
	rmdir "$here" 2>/dev/null || [ ! -e "$archive" ] || die 4 "the dump was broken off at its end; $by_hand"
	on_host "rmdir $in_there" </dev/null || true
	die 1 "the program was not dumped and runs on here"
fi
trap 'die 4 "interrupted before the restore; $by_hand"' HUP INT TERM
[ -z "$interrupted" ] || die 4 "interrupted before the restore; $by_hand"
on_host "umask 077; cat >$in_there/job.hetsnap" <"$archive" || die 4 "the archive could not be copied to $host, $there; $by_hand"

# From here on the program may run on HOST, whatever becomes of the connection. Only what the shell there says of the restore's end is
# to be believed: a broken connection has an exit status too.
unknown() {
	die 5 "the connection to $host broke during the restore, so that it is not known whether the program runs there. Look with \
\`$remote_hetckpt ps\` on $host, once no \`hetckpt restore\` is under way there: if the program is listed, it has been moved, and \
$archive here and $there/job.hetsnap there can be removed; only if it is not, restore it with \`hetckpt restore $archive\`"
}
trap unknown HUP INT TERM
# The program has restore's stdout and stderr for its own pipes. They must not be the connection, which it would keep open, nor a file,
# which would have to be on the next node too: so pipes, which somebody empties.
said=$(on_host "umask 077; in=$in_there
	{ { $(restore_of "$there") --pid-file \"\$in/pid\" 2>&1; echo \$? >\"\$in/end\"; mv \"\$in/end\" \"\$in/ended\"; } </dev/null |
		cat >\"\$in/output\" 2>/dev/null & }
	while [ ! -e \"\$in/ended\" ]; do sleep 0.2; done
	if [ \$(cat \"\$in/ended\") -eq 0 ]; then cat \"\$in/pid\"; else wait; cat \"\$in/output\" >&2; fi
	echo ended \$(cat \"\$in/ended\")" </dev/null) || true
case $said in
*$'\n'"ended 0") new_pid=${said%$'\n'*} ;;
*"ended "[1-9]*) die 4 "$host could not restore the program; $by_hand" ;;
*) unknown ;;
esac
trap - HUP INT TERM
on_host "rm -f $in_there/job.hetsnap" </dev/null || true
rm -f "$archive" || true
rmdir "$here" || true
echo "migrate: the program runs on $host; what it prints into pipes is in $there/output there" >&2
echo "$new_pid"
