# shellcheck shell=bash
# What the lab's Slurm promises. `check` and `$work` are of lab/check.
# shellcheck disable=SC2154

slurm_check() {
  local cell=$1
  slurm_ports "$cell"
  check "$cell: a request without a token is refused" slurm_status 401 "$cell" '' /slurm/v0.0.38/ping
  check "$cell: a job submitted over HTTP completes, its output is in the user's home" slurm_job "$cell" alice
  check "$cell: so for the other user" slurm_job "$cell" bob
  if [[ $cell == slurm-purge ]]; then
    check "$cell: after MinJobAge the controller has forgotten the job" slurm_forgotten "$cell"
  fi
  check "$cell: accounting knows the job" slurm_accounted "$cell"
  check "$cell: a user submits over SSH" slurm_ssh "$cell"
}

# slurm_ask CELL USER PATH [CURL-OPTION]...
slurm_ask() {
  local cell=$1 user=$2 path=$3
  shift 3
  curl -s --max-time 20 -H "X-SLURM-USER-NAME: $user" -H "X-SLURM-USER-TOKEN: $(slurm_token "$cell" "$user" 60)" \
    -H 'Content-Type: application/json' "$@" "http://$NODE_IP:$REST$path"
}

slurm_status() { [[ $(curl -s --max-time 20 -o /dev/null -w '%{http_code}' "http://$NODE_IP:$REST$4") == "$1" ]]; }

slurm_job() {
  local cell=$1 user=$2 home=$LAB/$1/home/$2 answer id
  answer=$(jq -n --arg home "$home" '{script: "#!/bin/sh\nid -un\n", job:
    {name: "lab-check", current_working_directory: $home, standard_output: ($home + "/check-%j.out"), environment: {PATH: "/usr/bin:/bin"}}}' |
    slurm_ask "$cell" "$user" /slurm/v0.0.38/job/submit --data-binary @-)
  echo "$answer"
  id=$(jq -e .job_id <<<"$answer")
  echo "$id" >"$work/$cell-job"
  wait_for 20 "the output of job $id" test -s "$home/check-$id.out"
  [[ $(<"$home/check-$id.out") == "$user" ]]
  rm "$home/check-$id.out"
}

slurm_forgotten() { wait_for 30 "the purge" slurm_unknown "$1" "$(<"$work/$1-job")"; }
slurm_unknown() { slurm_ask "$1" bob "/slurm/v0.0.38/job/$2" | jq -e 'any(.errors[]; .error_number == 2017 or .error_code == 2017 or .errno == 2017)'; }

slurm_accounted() { wait_for 20 "the job in accounting" slurm_completed "$1" "$(<"$work/$1-job")"; }
slurm_completed() { slurm_ask "$1" bob "/slurmdb/v0.0.38/job/$2" | jq -e '.jobs[0].state.current == "COMPLETED"'; }

slurm_ssh() {
  ssh -n -p "$SSH" -i "$LAB/$1/etc/ssh_user_key" -o BatchMode=yes -o UserKnownHostsFile="$LAB/$1/etc/known_hosts" "alice@$NODE_IP" \
    sbatch --wait --output=/dev/null --wrap=true
}
