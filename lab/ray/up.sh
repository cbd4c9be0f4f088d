# shellcheck shell=bash
# Ray: one head, as an ordinary user, with token authentication and without what only costs memory.

RAY_PORT=8265

ray_up() {
  local dir=$LAB/ray
  mkdir -p "$dir/log"
  [[ -d $dir/home ]] || install -d -m 755 -o 20010 -g 20010 "$dir/home"
  [[ -f $dir/token ]] || random_hex 24 | install -m 600 -o 20010 -g 20010 /dev/stdin "$dir/token"
  # Ray is many processes that need each other: if it does not answer, all of it is started again.
  if alive "$dir/run/head.pid" && ! wait_for 60 "Ray's answer" ray_answers; then
    say "ray: up but silent: starting it again"
    cell_down ray
  fi
  alive "$dir/run/head.pid" || cell_down ray
  RAY_VENV=$(ray_venv) cell_up ray
  if ! alive "$dir/run/head.pid"; then
    port_free "$RAY_PORT" Ray
    port_free 6379 Ray
    part_up ray head env -i HOME="$dir/home" LANG=C.UTF-8 PATH=/run/venv/bin:/usr/bin:/bin RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$dir/token" \
      setpriv --reuid ray --regid ray --clear-groups --inh-caps=-all \
      /run/venv/bin/ray start --head --block --node-ip-address "$NODE_IP" --port 6379 \
      --dashboard-host "$NODE_IP" --dashboard-port "$RAY_PORT" --ray-client-server-port 10001 \
      --dashboard-agent-listen-port 0 --min-worker-port 0 --max-worker-port 0 \
      --include-log-monitor=false --num-cpus 4 --object-store-memory 80000000 --disable-usage-stats --temp-dir /tmp/ray
  fi
  part_ready ray head ray_answers
  # The agent, which starts jobs, comes up after the head. Each job is a process with all of Ray in it, so it is tried once.
  if [[ ! -f $dir/run/takes-jobs ]]; then
    part_ready ray head ray_takes_jobs
    touch "$dir/run/takes-jobs"
  fi
  step "ray: head answers and takes jobs"
}

ray_answers() {
  curl -sf --max-time 20 -H "Authorization: Bearer $(<"$LAB/ray/token")" "http://$NODE_IP:$RAY_PORT/api/version"
}

ray_takes_jobs() {
  curl -sf --max-time 60 -H "Authorization: Bearer $(<"$LAB/ray/token")" "http://$NODE_IP:$RAY_PORT/api/jobs/" \
    --json "{\"submission_id\": \"lab-up-$(random_hex 4)\", \"entrypoint\": \"true\"}"
}

ray_down() { cell_down ray; }

ray_env() {
  echo "BRIDGE_LAB_RAY_URL=http://$NODE_IP:$RAY_PORT"
  echo "BRIDGE_LAB_RAY_TOKEN=$(<"$LAB/ray/token")"
  echo "BRIDGE_LAB_RAY_HOME=$LAB/ray/home"
}
