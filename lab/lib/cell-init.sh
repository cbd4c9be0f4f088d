#!/bin/bash
# The first process of a cell: makes the cell's private mounts, then collects orphans until it is killed.
set -euo pipefail
mount --make-rprivate /

# private_copy FOLDER: what is written there from now on stays in memory and ends with the cell
private_copy() {
  local store=$CELL_DIR/state/over${1//\//-}
  mkdir -p "$store/upper" "$store/work"
  mount -t overlay overlay -o "lowerdir=$1,upperdir=$store/upper,workdir=$store/work" "$1"
}

mkdir -p "$CELL_DIR/state"
mount -t tmpfs -o mode=755 tmpfs "$CELL_DIR/state"
mount -t tmpfs -o mode=755 tmpfs /run
mount --bind "$CELL_DIR/log" /var/log

# shellcheck source=/dev/null
. "$1"

touch "$CELL_DIR/run/ready"
# bash collects every orphan that ends while it waits
while :; do
  sleep 1000 &
  wait $!
done
