# shellcheck shell=bash
# S3: one server that checks signatures and keeps objects as files in the lab's folder.

S3_PORT=9000

s3_up() {
  local dir=$LAB/s3
  mkdir -p "$dir/log" "$dir/data"
  if [[ ! -f $dir/keys ]]; then
    (
      umask 077
      printf 'BRIDGE_SIM_S3_ACCESS_KEY=lab%s\nBRIDGE_SIM_S3_SECRET_KEY=%s\n' "$(random_hex 6)" "$(random_hex 20)" | put "$dir/keys"
    )
  fi
  cell_up s3
  if ! alive "$dir/run/server.pid"; then
    port_free "$S3_PORT" "the S3 server"
    (
      set -a
      # shellcheck source=/dev/null
      . "$dir/keys"
      part_up s3 server "$S3_PROGRAM" s3 --listen "$NODE_IP:$S3_PORT" --root "$dir/data"
    )
  fi
  part_ready s3 server s3_answers
  step "s3: server answers"
}

# Without a signature it refuses, which is an answer.
s3_answers() { [[ $(curl -s --max-time 20 -o /dev/null -w '%{http_code}' "http://$NODE_IP:$S3_PORT/") == 403 ]]; }

s3_down() { cell_down s3; }

s3_env() {
  local BRIDGE_SIM_S3_ACCESS_KEY BRIDGE_SIM_S3_SECRET_KEY
  # shellcheck source=/dev/null
  . "$LAB/s3/keys"
  echo "BRIDGE_LAB_S3_ENDPOINT=http://$NODE_IP:$S3_PORT"
  echo "BRIDGE_LAB_S3_ACCESS_KEY=$BRIDGE_SIM_S3_ACCESS_KEY"
  echo "BRIDGE_LAB_S3_SECRET_KEY=$BRIDGE_SIM_S3_SECRET_KEY"
  echo "BRIDGE_LAB_S3_FOLDER=$LAB/s3/data"
}
