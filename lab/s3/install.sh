# shellcheck shell=bash
# What S3 needs: the test server of this checkout, built with cargo; for tests of missing buckets also moto.

s3_packages() { echo curl ${LAB_REFRESH:+python3 python3-venv}; }

S3_PROGRAM=$LAB_CACHE/bin/bridge-sim

# cargo is asked when the program is missing, or when LAB_REFRESH is set (lab/install): a start is not to wait for a build.
s3_install() {
  [[ -x $S3_PROGRAM && -z ${LAB_REFRESH:-} ]] && return
  command -v cargo >/dev/null || die "the S3 server is built from this checkout, and there is no \`cargo\`: install Rust"
  local target=${CARGO_TARGET_DIR:-$BRIDGE_CACHE/target}
  [[ -x $S3_PROGRAM ]] || say "building the S3 server, once: a minute or two"
  (cd "$REPO" && CARGO_TARGET_DIR=$target nice cargo build --quiet --package bridge-testkit --bin bridge-sim) ||
    die "the S3 server could not be built: the messages above tell why"
  [[ -z ${LAB_REFRESH:-} ]] || "$LAB_SRC/s3/moto.sh" >/dev/null || die "moto, which tests of S3 need, could not be installed"
  mkdir -p "${S3_PROGRAM%/*}"
  cmp -s "$target/debug/bridge-sim" "$S3_PROGRAM" && return
  install -m 755 "$target/debug/bridge-sim" "$S3_PROGRAM.new"
  mv -f "$S3_PROGRAM.new" "$S3_PROGRAM"
}
