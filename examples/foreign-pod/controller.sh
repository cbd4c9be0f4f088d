#!/bin/sh
# A controller pod of your own, in 40 lines. It is given NAMESPACE and JOBNAME, and all it knows of the job is in the
# ConfigMap <job>-bridge-cm. Replace submit, poll and cancel by calls to your own system.
set -eu
map="$JOBNAME-bridge-cm"
export HOME=/tmp

get() { kubectl -n "$NAMESPACE" get configmap "$map" -o "go-template={{with index .data \"$1\"}}{{.}}{{end}}"; }
put() { kubectl -n "$NAMESPACE" patch configmap "$map" --type=merge -p "{\"data\":{\"$1\":\"$2\"}}" >/dev/null; }
now() { date -u +%Y-%m-%dT%H:%M:%SZ; }

# This "remote system" is a clock: a job is the moment at which it will be over. Credentials would be in /credentials.
submit() { echo "$(($(date +%s) + $(get jobdata.jobScript)))"; }
poll() { if [ "$(date +%s)" -ge "$1" ]; then echo COMPLETED; else echo RUNNING; fi; }
cancel() { :; }

# After a crash the pod is made again, with the id it had written: it goes on instead of submitting once more.
id=$(get id)
if [ -z "$id" ]; then
  id=$(submit)
  put id "$id"
  put submitTime "$(now)"
  put jobStatus SUBMITTED
fi

interval=$(get updateInterval)
while :; do
  if [ "$(get kill)" = true ]; then
    cancel "$id"
    put endTime "$(now)"
    put jobStatus CANCELLED
    exit 1
  fi
  status=$(poll "$id")
  [ "$status" = "$(get jobStatus)" ] || put jobStatus "$status"
  case $status in COMPLETED) put endTime "$(now)"; exit 0 ;; esac
  sleep "${interval:-20}"
done
