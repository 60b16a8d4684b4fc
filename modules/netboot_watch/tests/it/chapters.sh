#!/bin/sh
# A network boot in chapters, in namespaces of its own: the real journald, in.tftpd and nginx, and what the module says after each.
# chapters.sh HOME PROGRAM; an answer of the module a line.
set -eu
home=$1 program=$2
mac='02:a5:00:00:03:e9'

ip link set lo up
# in.tftpd resolves no address where there is none but loopback's.
ip addr add 10.77.0.1/24 dev lo
mount -t tmpfs none /run
mount -t tmpfs none /dev
mknod -m 666 /dev/null c 1 3
mknod -m 666 /dev/urandom c 1 9
ln -s /run/systemd/journal/dev-log /dev/log
/usr/lib/systemd/systemd-journald >/dev/null 2>&1 &
wait_for() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || { echo "not there: $*" >&2; exit 1; }
        sleep 0.1
    done
}
wait_for test -S /run/systemd/journal/dev-log
in.tftpd --foreground --listen --address 10.77.0.1:69 --secure -v -v -v "$home/tftp" &
nginx -e stderr -c "$home/nginx.conf" 2>/dev/null &
wait_for timeout 2 busybox tftp -g -l /dev/null -r ready 10.77.0.1
wait_for busybox wget -q -O /dev/null http://10.77.0.1/ready

# The web server's log has whole seconds: what comes after it comes in another one.
next_second() {
    now=$(date +%s)
    until [ "$(date +%s)" != "$now" ]; do sleep 0.1; done
}
tftp() { for name; do busybox tftp -g -l /dev/null -r "$name" 10.77.0.1 2>/dev/null || :; done; }
get() { for name; do busybox wget -q -O /dev/null "http://10.77.0.1/$name" 2>/dev/null || :; done; }
ask() { "$program" <"$home/$1.json" || :; }
boot() { tftp grubx64.efi /grub/grub.cfg "/grub/grub.cfg-$mac"; }

ask now
boot
ask menu_instead_of_install
ask served >"$home/served" &
served=$!
: >"$home/tftp/grub/grub.cfg-$mac"
boot
tftp /vmlinuz /initrd.img
wait $served
cat "$home/served"
get ks.cfg Packages/a.rpm Packages/b.rpm
ask installing
mv "$home/access.log" "$home/access.log.1"
kill -USR1 "$(cat "$home/nginx.pid")"
wait_for test -e "$home/access.log"
get keys/ssh/admin.pub
ask "done"
next_second
boot
tftp /vmlinuz /initrd.img
ask reinstalling
ask healthy_but_no_key
