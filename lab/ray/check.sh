# shellcheck shell=bash
# What the lab's Ray promises.

ray_check() {
  check "ray: a request without the token is refused" ray_status 401
  check "ray: a request with a wrong token is refused" ray_status 403 -H "Authorization: Bearer wrong"
  check "ray: a job with the token succeeds, on the cluster" ray_job
}

# ray_status CODE [CURL-OPTION]...
ray_status() {
  local code=$1
  shift
  [[ $(curl -s --max-time 10 -o /dev/null -w '%{http_code}' "$@" "http://$NODE_IP:$RAY_PORT/api/jobs/") == "$code" ]]
}

ray_ask() {
  local path=$1
  shift
  curl -sf --max-time 20 -H "Authorization: Bearer $(<"$LAB/ray/token")" "$@" "http://$NODE_IP:$RAY_PORT$path"
}

ray_job() {
  local id
  id=lab-check-$(random_hex 4)
  jq -n --arg id "$id" '{submission_id: $id, entrypoint: "python -c \"import ray; ray.init(); print(6 * ray.get(ray.remote(lambda: 7).remote()))\""}' |
    ray_ask /api/jobs/ --json @-
  wait_for 60 "the end of the job $id" ray_ended "$id"
  ray_ask "/api/jobs/$id/logs" | jq -r .logs | tee /dev/stderr | grep -qx 42
}
ray_ended() { [[ $(ray_ask "/api/jobs/$1" | jq -r .status) == SUCCEEDED ]]; }
