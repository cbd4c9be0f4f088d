# shellcheck shell=bash
# The lab's network namespace, and the one pair of links that joins it to the machine.
# Every system runs inside: what it opens to "any address" is open to this machine and the lab's pods only,
# and no port can clash with the machine's or with another lab's.
# shellcheck disable=SC2034 # the addresses are used by the systems

# number: gives this lab the lowest number that no other lab has; addresses and link names follow from it
number() {
  # After a restart of the machine, nothing in the folder is true any more.
  if [[ -f $LAB/boot && $(<"$LAB/boot") != "$(</proc/sys/kernel/random/boot_id)" ]]; then rm -rf --one-file-system "$LAB"; fi
  if [[ ! -f $LAB/number ]]; then
    local lock n taken
    lock_file lock "$LAB_ROOT/.numbers.lock" "another lab chooses its number"
    taken=" $(cat "$LAB_ROOT"/*/number 2>/dev/null | tr '\n' ' ') "
    for ((n = 0; n < 64; n++)); do
      [[ $taken != *" $n "* ]] && ! ip -4 -o addr show 2>/dev/null | grep -qF " 10.250.$n." && break
    done
    ((n < 64)) || die "64 labs are up or left their addresses (10.250.0.0/18) behind: \`ip -4 addr\` shows them"
    mkdir -p "$LAB"
    cp /proc/sys/kernel/random/boot_id "$LAB/boot"
    echo "$n" >"$LAB/number"
    rm -f "$LAB_ROOT/.numbers.lock"
    exec {lock}>&-
  fi
  addresses
}

# addresses: sets what follows from the number of a lab that has one
addresses() {
  NUMBER=$(<"$LAB/number")
  LINK=bridgelab$NUMBER
  HOST_IP=10.250.$NUMBER.1
  NODE_IP=10.250.$NUMBER.2
  POD_CIDR=10.244.$NUMBER.0/24
  NETNS=$LAB/netns
}

is_mount() { mountpoint -q "$1" 2>/dev/null; }

network_up() {
  if ! is_mount "$NETNS"; then
    touch "$NETNS"
    # Bound to a file: the namespace lives without any process, so none has to be kept alive for it.
    unshare --net="$NETNS" true ||
      die "cannot make a network namespace: this needs root with CAP_SYS_ADMIN and CAP_NET_ADMIN"
    local s
    for s in "${KNOWN_SYSTEMS[@]}"; do cell_down "$s"; done # they would be in the old one
    ip link delete "$LINK" 2>/dev/null || true # of a namespace that ended without \`down\`
  fi
  if ! ip link show "$LINK" >/dev/null 2>&1; then
    ip link add "$LINK" type veth peer name eth0 netns "$NETNS" # a name with a slash is a path
  fi
  ip addr replace "$HOST_IP/30" dev "$LINK"
  ip link set "$LINK" up
  # shellcheck disable=SC2016 # expanded by the shell inside
  nsenter --net="$NETNS" -- "$BASH" -euc '
    ip link set lo up
    ip addr replace "$1/30" dev eth0
    ip link set eth0 up
    ip route replace default via "$2"
    # This setting belongs to the namespace alone: pods are behind a bridge in it.
    [[ $(</proc/sys/net/ipv4/ip_forward) == 1 ]] || echo 1 >/proc/sys/net/ipv4/ip_forward
  ' network "$NODE_IP" "$HOST_IP"
  ip route replace "$POD_CIDR" via "$NODE_IP" dev "$LINK"
}

network_down() {
  [[ -n ${LINK:-} ]] || return 0
  ip link delete "$LINK" 2>/dev/null || true # takes its address, its route and its other end along
  if is_mount "$NETNS"; then umount "$NETNS"; fi
  rm -f "$NETNS"
}

# port_free PORT WHAT: refuses, with the owner's name, a port that something else holds in the lab's network
port_free() {
  local line
  line=$(nsenter --net="$NETNS" -- ss -Hltnp "sport = :$1")
  [[ -z $line ]] && return
  if [[ $line =~ \(\(\"([^\"]*)\",pid=([0-9]+) ]]; then
    die "port $1 of the lab's network, which $2 needs, is taken by ${BASH_REMATCH[1]} (process ${BASH_REMATCH[2]}): end that process, or run a second lab with BRIDGE_LAB_NAME"
  fi
  die "port $1 of the lab's network, which $2 needs, is taken by a process that cannot be seen from here: ${line}"
}
