# shellcheck shell=bash
# What Ray needs: its wheels in a virtual environment of their own, every version pinned.

ray_packages() { echo python3 python3-venv curl; }

# ray_venv: another list of versions is another folder
ray_venv() {
  local key
  key=$(sha256sum "$LAB_SRC/ray/requirements.txt")
  printf '%s' "$LAB_CACHE/ray-${key:0:12}"
}

ray_install() {
  local venv
  venv=$(ray_venv)
  [[ -d $venv ]] && return
  require_space "$LAB_CACHE" 1 "Ray"
  say "installing Ray, once: a minute, 400 MB"
  # PyPI may be out of reach for a while.
  { ray_fetch "$venv.new" || ray_fetch "$venv.new" || ray_fetch "$venv.new"; } >"$LAB_CACHE/ray.log" 2>&1 || {
    tail -n 15 "$LAB_CACHE/ray.log" >&2
    die "Ray could not be installed (above: the end of $LAB_CACHE/ray.log)"
  }
  # The cell sees this folder at another place: scripts must not name their interpreter by its path.
  find "$venv.new/bin" -type f -exec sed -i '1s|^#!.*python.*|#!/usr/bin/env python3|' {} +
  mv "$venv.new" "$venv"
}

# ray_fetch FOLDER
ray_fetch() {
  rm -rf "$1"
  # Debian's own Python: every user may run it, and Ray does not run as root.
  /usr/bin/python3 -m venv "$1" &&
    "$1/bin/pip" install --disable-pip-version-check --no-input --retries 10 --timeout 60 \
      --requirement "$LAB_SRC/ray/requirements.txt"
}
