# shellcheck shell=bash
# What the machine must have, and how it gets there.

# require_space FOLDER GIB WHAT
require_space() {
  mkdir -p "$1" 2>/dev/null || die "cannot make the folder $1, which $3 needs"
  local free
  free=$(df --output=avail --block-size=1M "$1" | tail -n 1)
  ((free >= $2 * 1024)) ||
    die "the disk of $1 has $free MiB free and $3 needs $(($2 * 1024)): free some space, or choose another folder (BRIDGE_LAB_DIR, BRIDGE_CACHE)"
}

# require_machine: refuses, with one sentence that names all that is missing, a machine on which the lab cannot run
require_machine() {
  local missing=()
  [[ $(uname -s) == Linux ]] || die "the lab needs Linux; on another system, point BRIDGE_TEST_KUBECONFIG to a cluster and set BRIDGE_LAB=off for the rest"
  if ((EUID != 0)); then
    missing+=("root (it makes namespaces, mounts and links): run it with sudo, or in a virtual machine")
  else
    local capability number effective
    effective=$(awk '/^CapEff/ {print $2}' /proc/self/status)
    # CAP_SYS_RESOURCE is not among them: containers have it dropped, and the lab is set up to do without.
    for capability in CHOWN:0 DAC_OVERRIDE:1 FOWNER:3 KILL:5 SETGID:6 SETUID:7 NET_BIND_SERVICE:10 NET_ADMIN:12 SYS_CHROOT:18 SYS_PTRACE:19 SYS_ADMIN:21 MKNOD:27; do
      number=${capability#*:}
      (((16#$effective >> number) & 1)) || missing+=("the capability CAP_${capability%:*}")
    done
  fi
  if ((${#missing[@]})); then
    local text
    printf -v text '%s; ' "${missing[@]}"
    die "the lab cannot run here; missing: ${text%; }"
  fi
}

# require_packages PACKAGE...: installs from Debian what is not there yet
require_packages() {
  local wanted=() package
  for package in $(printf '%s\n' "$@" | sort -u); do
    [[ $(dpkg-query --show --showformat='${db:Status-Abbrev}' "$package" 2>/dev/null) == ii* ]] || wanted+=("$package")
  done
  ((${#wanted[@]})) || return 0
  if ! command -v apt-get >/dev/null || ! grep -qs '^ID=debian' /etc/os-release; then
    die "the lab's programs come from Debian 12's packages, and this is not Debian; missing: ${wanted[*]}"
  fi
  ((EUID == 0)) || die "root is needed to install: ${wanted[*]}"
  say "installing from Debian: ${wanted[*]}"
  local lock policy=/usr/sbin/policy-rc.d made=
  lock_file lock "$LAB_CACHE/.packages.lock" "another lab installs packages"
  # The lab runs these programs itself: Debian is not to start them as services of the machine.
  if [[ ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    made=$policy
  fi
  local status=0
  {
    apt-get update -o Acquire::Retries=5 &&
      DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends -o Acquire::Retries=5 \
        -o DPkg::Lock::Timeout=300 "${wanted[@]}"
  } >"$LAB_CACHE/packages.log" 2>&1 </dev/null || status=$?
  [[ -z $made ]] || rm -f "$made"
  exec {lock}>&-
  if ((status)); then
    tail -n 15 "$LAB_CACHE/packages.log" >&2
    die "Debian's packages could not be installed (above: the end of $LAB_CACHE/packages.log)"
  fi
}

# install SYSTEM...: packages of all of them in one go, then what each one builds
install_systems() {
  local s packages=()
  mkdir -p "$LAB_CACHE"
  for s in "$@"; do
    load install "$s"
    # shellcheck disable=SC2207 # package names have no spaces
    packages+=($("${s%-purge}_packages"))
  done
  require_packages "${packages[@]}" util-linux procps iproute2 jq curl
  local lock
  lock_file lock "$LAB_CACHE/.install.lock" "another command installs the lab's programs"
  for s in "$@"; do "${s%-purge}_install"; done
  exec {lock}>&-
}
