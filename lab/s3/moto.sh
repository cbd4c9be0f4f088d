#!/bin/bash
# lab/s3/moto.sh: installs moto, an S3 server that treats missing buckets as the real service does, once.
# It checks no signatures, so it is no replacement for the lab's own server. Prints its program.
# lab/install calls it, so that no test has to fetch anything.
set -euo pipefail
cache=${BRIDGE_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/bridge}
version=5.1.14
venv=$cache/moto-$version
mkdir -p "$cache"
# Tests ask side by side; one installs.
exec 9>"$cache/moto.lock"
flock 9
fetch() {
  rm -rf "$venv.new"
  python3 -m venv "$venv.new" &&
    "$venv.new/bin/pip" install --disable-pip-version-check --no-input --retries 10 --timeout 60 "moto[s3,server]==$version"
}
if [[ ! -x $venv/bin/moto_server ]]; then
  # PyPI may be out of reach for a while.
  { fetch || fetch || fetch; } >"$cache/moto.log" 2>&1 || {
    tail -n 15 "$cache/moto.log" >&2
    echo "moto could not be installed (above: the end of $cache/moto.log); is python3-venv there, and PyPI?" >&2
    exit 1
  }
  # Scripts of an environment name their interpreter by its path.
  find "$venv.new/bin" -type f -exec sed -i "1s|$venv.new|$venv|" {} +
  mv "$venv.new" "$venv"
fi
exec 9>&-
echo "$venv/bin/moto_server"
