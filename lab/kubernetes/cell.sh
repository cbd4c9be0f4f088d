# shellcheck shell=bash
# The mounts of the Kubernetes cell (sourced by lib/cell-init.sh).

# kubelet, containerd and libcni write to these whatever they are told.
for folder in /var/lib /opt /usr/libexec; do private_copy "$folder"; done

# kubelet sets these for the whole machine: show it the values it wants instead.
fake() {
  echo "$2" >"$CELL_DIR/state/fake-${1//\//-}"
  mount --bind "$CELL_DIR/state/fake-${1//\//-}" "/proc/sys/$1"
}
fake vm/overcommit_memory 1
fake kernel/panic 10
fake kernel/panic_on_oops 1

# Volumes of pods are mounted by kubelet and must be seen by the runtime.
mount --make-rshared /
