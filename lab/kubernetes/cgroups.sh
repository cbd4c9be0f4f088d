# shellcheck shell=bash
# The one cgroup below which all the lab's pods are, on either version of cgroups.

kubernetes_cgroup() { printf 'bridge-lab-%s' "$NUMBER"; }

cgroup_version() {
  if [[ $(stat -fc %T /sys/fs/cgroup 2>/dev/null) == cgroup2fs ]]; then
    printf 2
  elif findmnt -rno TARGET -t cgroup -O memory >/dev/null; then
    printf 1
  else
    die "Kubernetes needs cgroups, and neither version is mounted at /sys/fs/cgroup: mount them, or run the lab in a virtual machine"
  fi
}

# kubernetes_cgroup_folders: where the lab's cgroup is or is to be, one path for each hierarchy
kubernetes_cgroup_folders() {
  local mounted
  if [[ $(cgroup_version) == 2 ]]; then
    printf '/sys/fs/cgroup/%s\n' "$(kubernetes_cgroup)"
  else
    # The empty version 2 hierarchy beside version 1 counts: runc makes the cgroup there too.
    findmnt -rno TARGET -t cgroup,cgroup2 | sort -u | while read -r mounted; do
      printf '%s/%s\n' "$mounted" "$(kubernetes_cgroup)"
    done
  fi
}

kubernetes_cgroups_up() {
  local folder parent controller
  # Not in a substitution, whose end would not be ours: a kubelet without cgroups is waited for in vain.
  cgroup_version >/dev/null
  if [[ $(cgroup_version) == 2 ]]; then
    for controller in cpu cpuset memory pids; do
      grep -qw "$controller" /sys/fs/cgroup/cgroup.subtree_control ||
        die "cgroup v2 does not pass the controller \"$controller\" on: run \`echo +$controller >/sys/fs/cgroup/cgroup.subtree_control\` (as root; it changes the machine, so the lab does not)"
    done
  fi
  while read -r folder; do
    mkdir -p "$folder" || die "cannot make the cgroup $folder: /sys/fs/cgroup must be writable"
    parent=${folder%/*}
    if [[ -f $parent/cpuset.cpus && -f $folder/cpuset.cpus && $(cgroup_version) == 1 ]]; then
      # A cpuset of version 1 starts empty, and nothing can run in it.
      cat "$parent/cpuset.cpus" >"$folder/cpuset.cpus"
      cat "$parent/cpuset.mems" >"$folder/cpuset.mems"
    fi
  done < <(kubernetes_cgroup_folders)
}

kubernetes_cgroups_down() { wait_for "$PROCESS_PATIENCE" "the cgroups of the lab's pods to empty" cgroups_removed; }
cgroups_removed() {
  local folder left=0
  while read -r folder; do
    [[ -d $folder ]] || continue
    find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null
    [[ ! -d $folder ]] || left=1
  done < <(kubernetes_cgroup_folders)
  ((left == 0))
}
