# First process of a node: its own files over those of this machine, then sshd. $1 is the node's directory, $2 its name,
# $3 the stand-ins, $4 what all nodes share.
set -e
node=$1 name=$2 bin=$3 shared=$4
hostname "$name"
ip link set lo up
cp -a /etc "$node/etc"
rm -rf "$node/etc/ssh" "$node/etc/corosync" "$node/etc/pve"
mv "$node/etc-ssh" "$node/etc/ssh"
mkdir "$node/etc/corosync" "$node/etc/pve"
cp "$node/hosts" "$node/etc/hosts"
# Without PAM sshd refuses an account whose password is locked.
sed -i 's/^root:[^:]*:/root:*:/' "$node/etc/shadow"
mount --bind "$node/etc" /etc
mount --bind "$node/run" /run
for directory in /dev/shm /root /var/lib; do mount -t tmpfs tmpfs $directory; done
mkdir -p -m 700 /root/.ssh /run/sshd /run/lab /var/lib/corosync /var/lib/pve-cluster
cp "$node"/root-ssh/* /root/.ssh/
ln -s "$shared" /run/lab/shared
export PATH="$bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" LC_ALL=C
/usr/sbin/sshd -e -f /etc/ssh/sshd_config -E /run/lab/sshd.log
: > /run/lab/up
# Children of children that ended are this process's to collect.
while :; do sleep 5 & wait; done
