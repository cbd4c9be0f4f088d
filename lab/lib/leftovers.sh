# shellcheck shell=bash
# What a lab could leave behind on the machine, and how to see it.

# footprint: remembers, while the lab is up, by what its traces can be told from those of other labs
footprint() {
  FOOTPRINT_NETNS=$(stat -Lc %i "$NETNS")
  FOOTPRINT_LINK=$LINK
  FOOTPRINT_PODS=$POD_CIDR
  FOOTPRINT_CGROUP=bridge-lab-$NUMBER
  FOOTPRINT_USERS=$(sha256sum /etc/passwd /etc/group /etc/shadow)
}

# leftovers: prints one line for each trace, nothing when there is none
leftovers() {
  local process
  for process in /proc/[0-9]*; do
    if [[ $(stat -Lc %i "$process/ns/net" 2>/dev/null) == "$FOOTPRINT_NETNS" ]] ||
      tr '\0' ' ' 2>/dev/null <"$process/cmdline" | grep -qF "$LAB/"; then
      echo "process ${process#/proc/}: $(tr '\0' ' ' 2>/dev/null <"$process/cmdline")"
    fi
  done
  # Nothing found is what these are hoped to say: no failure.
  grep -F "$LAB" /proc/self/mountinfo | sed 's/^/mount: /' || true
  find /sys/fs/cgroup -maxdepth 2 -name "$FOOTPRINT_CGROUP" | sed 's/^/cgroup: /' || true
  ip -o link show "$FOOTPRINT_LINK" 2>/dev/null | sed 's/^/link: /' || true
  ip route show "$FOOTPRINT_PODS" | sed 's/^/route: /' || true
  [[ $(sha256sum /etc/passwd /etc/group /etc/shadow) == "$FOOTPRINT_USERS" ]] || echo "users: /etc/passwd, group or shadow changed"
  [[ ! -e $LAB ]] || echo "folder: $LAB"
  [[ ! -e $LAB_ROOT/.$LAB_NAME.lock ]] || echo "file: $LAB_ROOT/.$LAB_NAME.lock"
}
