# shellcheck shell=bash
# The mounts of the Ray cell (sourced by lib/cell-init.sh): sessions and shared objects end with it.
private_copy /etc
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /dev/shm

hostname ray
echo "127.0.0.1 localhost
$NODE_IP ray" >/etc/hosts
# No name server is in reach.
sed -i 's/^hosts:.*/hosts: files/' /etc/nsswitch.conf

echo "ray:x:20010:20010::$CELL_DIR/home:/bin/bash" >>/etc/passwd
echo "ray:x:20010:" >>/etc/group

# At a place that an ordinary user may enter, wherever the cache is.
mkdir /run/venv
mount --bind "$RAY_VENV" /run/venv
