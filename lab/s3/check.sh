# shellcheck shell=bash
# What the lab's S3 promises. `check` and `$work` are of lab/check.
# shellcheck disable=SC2154

s3_check() {
  local BRIDGE_SIM_S3_ACCESS_KEY BRIDGE_SIM_S3_SECRET_KEY
  # shellcheck source=/dev/null
  . "$LAB/s3/keys"
  check "s3: an object is stored and read back" s3_round
  check "s3: a request without a signature is refused" s3_status 403 -H 'X-Nothing: '
  check "s3: a wrongly signed request is refused" s3_status 403 --config <(s3_signed wrong)
}

# s3_signed SECRET: curl's options, from a file because arguments are visible to everybody
s3_signed() {
  printf '%s\n' 'aws-sigv4 = "aws:amz:us-east-1:s3"' 'header = "x-amz-content-sha256: UNSIGNED-PAYLOAD"' "user = \"$BRIDGE_SIM_S3_ACCESS_KEY:$1\""
}
s3_ask() { curl -sf --max-time 10 --config <(s3_signed "$BRIDGE_SIM_S3_SECRET_KEY") "$@"; }

s3_round() {
  local url=http://$NODE_IP:$S3_PORT/lab-check
  s3_ask -X PUT "$url"
  echo content >"$work/object"
  s3_ask -T "$work/object" "$url/a/b"
  [[ $(s3_ask "$url/a/b") == content ]]
  s3_ask -X DELETE "$url/a/b"
  s3_ask -X DELETE "$url"
}

s3_status() {
  local code=$1
  shift
  [[ $(curl -s --max-time 10 -o /dev/null -w '%{http_code}' "$@" "http://$NODE_IP:$S3_PORT/lab-check/a") == "$code" ]]
}
