# shellcheck shell=bash
# A cell holds one system: its own processes, mounts and host name in the lab's network.
# Its first process is the only one to stop: when it ends, the kernel ends every other process in the cell and
# undoes its mounts. Programs in a cell ("parts") write where they like without changing the machine.

cell_dir() { printf '%s' "$LAB/$1"; }

# cell_alive CELL: prints the process id of the cell's first process
cell_alive() {
  alive "$LAB/$1/run/cell.pid" && recall "$LAB/$1/run/init.pid"
}

# in_cell CELL COMMAND...
in_cell() {
  local init
  init=$(cell_alive "$1") || die "$1 is not up in the lab \"$LAB_NAME\": run lab/up $1"
  shift
  nsenter --target "$init" --mount --uts --ipc --net --pid -- "$@"
}

# cell_up CELL: starts the cell, after clearing what a dead one left. Its mounts are made by lab/SYSTEM/cell.sh.
cell_up() {
  local cell=$1 dir=$LAB/$1
  cell_alive "$cell" >/dev/null && return
  cell_down "$cell"
  mkdir -p "$dir/run" "$dir/log"
  # setsid does not fork here, so $! is `unshare`; --kill-child ends the cell with it.
  setsid nsenter --net="$NETNS" -- \
    unshare --mount --uts --ipc --pid --fork --mount-proc --kill-child=KILL \
    env LAB="$LAB" CELL="$cell" CELL_DIR="$dir" NODE_IP="$NODE_IP" \
    "$BASH" "$LAB_SRC/lib/cell-init.sh" "$(system_folder "$cell")/cell.sh" \
    >>"$dir/log/cell.log" 2>&1 </dev/null {LAB_LOCK}>&- &
  local outer=$!
  remember "$dir/run/cell.pid" "$outer" ||
    cell_failed "$cell"
  wait_for "$PROCESS_PATIENCE" "the namespaces of $cell" cell_settled "$dir" || cell_failed "$cell"
  local inner
  inner=$(child_of "$outer") || cell_failed "$cell"
  remember "$dir/run/init.pid" "$inner" || cell_failed "$cell"
  [[ -f $dir/run/ready ]] || cell_failed "$cell"
}
cell_settled() { [[ -f $1/run/ready ]] || dead "$1/run/cell.pid"; }
cell_failed() {
  tail -n 20 "$LAB/$1/log/cell.log" >&2 || true
  die "the namespaces of $1 could not be set up (above: the end of $LAB/$1/log/cell.log); this needs root with CAP_SYS_ADMIN and a kernel with overlayfs"
}

child_of() { pgrep -P "$1" | head -n 1 | grep .; }

# cell_down CELL: ends all its processes and forgets them
cell_down() {
  local run=$LAB/$1/run
  [[ -d $run ]] || return 0
  local init
  if init=$(recall "$run/init.pid"); then kill -KILL "$init" 2>/dev/null || true; fi
  stop_process "$run/cell.pid" KILL "$PROCESS_PATIENCE"
  wait_for "$PROCESS_PATIENCE" "the first process of $1 to end" dead "$run/init.pid"
  # The processes outside that wait for the parts end after them.
  local wrapper
  for wrapper in "$run"/*.wrapper; do wait_for "$PROCESS_PATIENCE" "the process of $wrapper to end" dead "$wrapper"; done
  rm -rf "$run"
}

# part_up CELL PART COMMAND...: starts a program in the cell unless it runs. The program must stay in the foreground.
part_up() {
  local cell=$1 part=$2 run=$LAB/$1/run log=$LAB/$1/log/$2.log init wrapper pid
  shift 2
  alive "$run/$part.pid" && return
  init=$(cell_alive "$cell") || die "$cell ended while $part was to be started: see $LAB/$cell/log"
  # Daemons get no descriptor of ours: one that is inherited would keep the lock, or a caller's pipe, open.
  setsid nsenter --target "$init" --mount --uts --ipc --net --pid -- "$@" >>"$log" 2>&1 </dev/null {LAB_LOCK}>&- &
  wrapper=$!
  remember "$run/$part.wrapper" "$wrapper" || part_failed "$cell" "$part"
  wait_for "$PROCESS_PATIENCE" "$part of $cell to start" started_or_ended "$wrapper" || part_failed "$cell" "$part"
  if ! pid=$(child_of "$wrapper") || ! remember "$run/$part.pid" "$pid"; then part_failed "$cell" "$part"; fi
}
started_or_ended() { child_of "$1" || ! start_time "$1"; }

part_failed() {
  tail -n 15 "$LAB/$1/log/$2.log" >&2 2>/dev/null || true
  die "$2 of $1 did not come up (above: the end of $LAB/$1/log/$2.log)"
}

# part_ready CELL "PART [PART]..." COMMAND...: waits until the command succeeds; fails as soon as one of the parts that it
# takes, the one in question first, has died
part_ready() {
  local cell=$1 part parts over='' deadline=$(($(now_ms) + SYSTEM_PATIENCE * 1000))
  read -ra parts <<<"$2"
  shift 2
  until "$@" >/dev/null 2>&1; do
    [[ -z $over ]] || part_failed "$cell" "${parts[0]}"
    for part in "${parts[@]}"; do alive "$LAB/$cell/run/$part.pid" || part_failed "$cell" "$part"; done
    (($(now_ms) < deadline)) || over=yes
    sleep 0.05
  done
}

# part_down CELL PART SIGNAL SECONDS
part_down() { stop_process "$LAB/$1/run/$2.pid" "$3" "$4"; }

# parts CELL: one line for each part the cell was told to run: name, process id or "dead"
parts() {
  local file pid
  for file in "$LAB/$1"/run/*.pid; do
    file=${file##*/}
    file=${file%.pid}
    [[ $file == cell || $file == init ]] && continue
    pid=$(recall "$LAB/$1/run/$file.pid") || pid=dead
    printf '%s %s\n' "$file" "$pid"
  done
}
