#!/usr/bin/env bash
# Boots the systemd of a Debian in namespaces of its own: processes, network, mounts, control groups.
# What it changes in the directory goes to memory. It ends with this process.
# Usage: boot.sh DIRECTORY CGROUP, both of which exist; CGROUP is of version 2. Needs root.
set -euo pipefail
echo $$ >"$2/cgroup.procs"
# shellcheck disable=SC2016 # the script is for the shell inside
exec unshare --mount --pid --net --uts --ipc --cgroup --fork --kill-child bash -euc '
hostname example
ip link set lo up
mount -t tmpfs -o mode=755 tmpfs "$0/mnt"
cd "$0/mnt"
mkdir changes work root
mount -t overlay -o "lowerdir=$0,upperdir=changes,workdir=work" overlay root
cd root
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
# No file of the machine outside: systemd changes the owner of a console.
mknod -m 666 dev/null c 1 3
mknod -m 600 dev/console c 1 3
mknod -m 666 dev/zero c 1 5
mknod -m 666 dev/full c 1 7
mknod -m 666 dev/random c 1 8
mknod -m 666 dev/urandom c 1 9
mknod -m 666 dev/tty c 5 0
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
# A socket is found by its file, which is another one in the overlay.
mkdir -p .outside
mount --bind "$0/booted" booted
pivot_root . .outside
umount --lazy .outside
# It says on the socket when it has booted.
exec env -i container=other NOTIFY_SOCKET=/booted PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
  /lib/systemd/systemd --log-target=journal systemd.unified_cgroup_hierarchy=1
' "$1"
