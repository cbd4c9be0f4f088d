# shellcheck shell=bash
# Names, folders, messages, waiting and locking: what every command of the lab shares.
# shellcheck disable=SC2034 # most names here are used by the files that source this one

set -euo pipefail
shopt -s inherit_errexit nullglob

LAB_SRC=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
REPO=$(dirname "$LAB_SRC")

BRIDGE_CACHE=${BRIDGE_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set: set BRIDGE_CACHE to a folder for built programs}/.cache}/bridge}
LAB_CACHE=$BRIDGE_CACHE/lab
LAB_ROOT=${BRIDGE_LAB_DIR:-/var/tmp/bridge-lab}
LAB_NAME=${BRIDGE_LAB_NAME:-lab}
LAB=$LAB_ROOT/$LAB_NAME

ALL_SYSTEMS=(kubernetes slurm ray s3)
KNOWN_SYSTEMS=(kubernetes slurm slurm-purge ray s3)

say() { printf 'lab: %s\n' "$*" >&2; }
die() {
  printf 'lab: %s\n' "$*" >&2
  exit 1
}

[[ $LAB_NAME =~ ^[a-z][a-z0-9-]{0,30}$ ]] ||
  die "BRIDGE_LAB_NAME is \"$LAB_NAME\": use up to 31 lower-case letters, digits and dashes, a letter first"
# Unix sockets below the lab's folder have at most 107 characters in their path.
((${#LAB} <= 60)) || die "the lab's folder $LAB is longer than 60 characters: set BRIDGE_LAB_DIR to a shorter one"
[[ $LAB == /* ]] || die "BRIDGE_LAB_DIR is \"$LAB_ROOT\": give an absolute path"

# --- time ---------------------------------------------------------------------------------------

now_ms() {
  local t=$EPOCHREALTIME
  t=${t/[.,]/}
  printf '%s' "${t%???}"
}
LAB_T0=$(now_ms)

# seconds_since MILLISECONDS: "1.23"
seconds_since() {
  local d=$(($(now_ms) - $1))
  printf '%d.%02d' $((d / 1000)) $((d % 1000 / 10))
}

# step TEXT: says that something was reached, and when
step() { printf 'lab: %5s s  %s\n' "$(seconds_since "$LAB_T0")" "$*" >&2; }

# How many seconds a process has to start or to end, and a system to answer: bounds for what hangs, not for what is slow.
PROCESS_PATIENCE=120
SYSTEM_PATIENCE=600

# wait_for SECONDS WHAT COMMAND...: polls until the command succeeds. Returns 1 at the deadline.
wait_for() {
  local deadline=$(($(now_ms) + $1 * 1000)) what=$2 over=
  shift 2
  until "$@" >/dev/null 2>&1; do
    if [[ -n $over ]]; then
      say "waited in vain for: $what"
      return 1
    fi
    # The machine may have stood still since the last try: there is one more after the deadline.
    (($(now_ms) < deadline)) || over=yes
    sleep 0.05
  done
}

# --- processes ----------------------------------------------------------------------------------
# A process is remembered as "PID STARTTIME": a recycled number is never taken for the old process.

start_time() {
  local stat
  { stat=$(<"/proc/$1/stat"); } 2>/dev/null || return 1
  stat=${stat##*) } # the name in parentheses may hold anything
  local fields
  read -ra fields <<<"$stat"
  [[ ${fields[0]} != [ZX] ]] || return 1
  printf '%s' "${fields[19]}"
}

# remember FILE PID
remember() {
  local started
  started=$(start_time "$2") || return 1
  printf '%s %s\n' "$2" "$started" >"$1"
}

# recall FILE: the process id in it, if that very process is alive
recall() {
  local pid started
  [[ -f $1 ]] && read -r pid started <"$1" || return 1
  [[ $(start_time "$pid") == "$started" ]] || return 1
  printf '%s' "$pid"
}

alive() { recall "$1" >/dev/null; }

# stop_process FILE SIGNAL SECONDS: signals, waits, then kills
stop_process() {
  local pid
  if pid=$(recall "$1"); then
    kill -"$2" "$pid" 2>/dev/null || true
    if ! wait_for "$3" "process $pid ($1) to end after SIG$2" dead "$1"; then
      kill -KILL "$pid" 2>/dev/null || true
      wait_for "$PROCESS_PATIENCE" "process $pid ($1) to end after SIGKILL" dead "$1"
    fi
  fi
  rm -f "$1"
}
dead() { ! alive "$1"; }

# --- one command at a time ----------------------------------------------------------------------

# lock: one command changes a lab at a time; waits for the other one
lock() {
  mkdir -p "$LAB_ROOT"
  lock_file LAB_LOCK "$LAB_ROOT/.$LAB_NAME.lock" "another command works on the lab \"$LAB_NAME\""
}

# lock_file VARIABLE PATH REASON: opens PATH as a lock, and sets VARIABLE to its descriptor
lock_file() {
  local -n descriptor=$1
  while :; do
    exec {descriptor}>"$2"
    if ! flock -n "$descriptor"; then
      say "$3: waiting for it"
      flock -w 900 "$descriptor" || die "$3, and did not end in 15 minutes: see \`fuser -v $2\`"
    fi
    # Whoever held it before may have removed the file: then this is a lock on nothing.
    [[ "$(stat -Lc %i "/proc/self/fd/$descriptor")" == "$(stat -c %i "$2" 2>/dev/null)" ]] && return
    exec {descriptor}>&-
  done
}

# --- which systems ------------------------------------------------------------------------------

# systems NAME...: sets SYSTEMS, all of them when none is named
systems() {
  SYSTEMS=("$@")
  (($#)) || SYSTEMS=("${ALL_SYSTEMS[@]}")
  local s
  for s in "${SYSTEMS[@]}"; do
    [[ " ${KNOWN_SYSTEMS[*]} " == *" $s "* ]] || die "there is no system \"$s\": choose from ${KNOWN_SYSTEMS[*]}"
  done
}

# Slurm runs twice at most, with the same files: as shipped, and with jobs purged after two seconds.
system_folder() { printf '%s' "$LAB_SRC/${1%-purge}"; }

# load FILE SYSTEM: sources lab/SYSTEM/FILE.sh
load() {
  # shellcheck source=/dev/null
  . "$(system_folder "$2")/$1.sh"
}

# put FILE: standard input into FILE at once, so that no reader sees half of it
put() {
  local new=$1.new.$BASHPID
  cat >"$new"
  mv -f "$new" "$1"
}

# random_hex BYTES
random_hex() { head -c "$1" /dev/urandom | od -An -tx1 | tr -d ' \n'; }
