# shellcheck shell=bash
# The S3 server needs no mounts of its own (sourced by lib/cell-init.sh).
