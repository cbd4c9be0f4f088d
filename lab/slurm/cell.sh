# shellcheck shell=bash
# The mounts of a Slurm cell (sourced by lib/cell-init.sh): the programs find everything at Debian's usual places, and
# the users of the cluster exist in here only.
private_copy /etc
private_copy /var/lib
mount -t tmpfs -o mode=1777 tmpfs /tmp

hostname node1
echo "127.0.0.1 localhost
$NODE_IP node1" >/etc/hosts
# No name server is in reach, and slurmrestd looks every caller's address up.
sed -i 's/^hosts:.*/hosts: files/' /etc/nsswitch.conf

# user NAME ID: '*' instead of '!' as password, or sshd would take the account for locked
user() {
  echo "$1:x:$2:$2::$CELL_DIR/home/$1:/bin/bash" >>/etc/passwd
  echo "$1:x:$2:" >>/etc/group
  echo "$1:*:19000:0:99999:7:::" >>/etc/shadow
}
user alice 20001
user bob 20002
user slurmrest 20003

rm -rf /etc/slurm
mkdir -p /etc/slurm
mount --bind "$CELL_DIR/etc" /etc/slurm

mkdir -p /run/munge /run/mysqld /run/sshd /run/slurm
chown munge: /run/munge
chown mysql: /run/mysqld
