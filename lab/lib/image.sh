# shellcheck shell=bash
# Container images without a container engine: a folder becomes a one-layer OCI archive.

image_file() { printf '%s' "$LAB_CACHE/images/$(tr '/:' '__' <<<"$1").tar"; }

# image_archive REFERENCE FOLDER CONFIG: CONFIG is the JSON of the image's "config" (Cmd, Entrypoint, User, Env …)
image_archive() {
  local ref=$1 folder=$2 config=$3 work blobs out layer config_digest manifest
  out=$(image_file "$ref")
  mkdir -p "${out%/*}"
  work=$(mktemp -d "${out%/*}/.work.XXXXXX")
  blobs=$work/blobs/sha256
  mkdir -p "$blobs"
  # Owners and times are fixed, so that the same files make the same image.
  tar --create --file "$work/layer" --directory "$folder" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 .
  layer=$(image_blob "$blobs" "$work/layer")
  jq -n --argjson config "$config" --arg layer "sha256:$layer" --arg arch "$(image_arch)" \
    '{architecture: $arch, os: "linux",
      config: ({Env: ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"]} + $config),
      rootfs: {type: "layers", diff_ids: [$layer]}}' >"$work/config"
  config_digest=$(image_blob "$blobs" "$work/config")
  jq -n --arg config "sha256:$config_digest" --argjson config_size "$(stat -c %s "$blobs/$config_digest")" \
    --arg layer "sha256:$layer" --argjson layer_size "$(stat -c %s "$blobs/$layer")" \
    '{schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json",
      config: {mediaType: "application/vnd.oci.image.config.v1+json", digest: $config, size: $config_size},
      layers: [{mediaType: "application/vnd.oci.image.layer.v1.tar", digest: $layer, size: $layer_size}]}' >"$work/manifest"
  manifest=$(image_blob "$blobs" "$work/manifest")
  jq -n --arg manifest "sha256:$manifest" --argjson size "$(stat -c %s "$blobs/$manifest")" --arg ref "$ref" --arg arch "$(image_arch)" \
    '{schemaVersion: 2, mediaType: "application/vnd.oci.image.index.v1+json", manifests: [
      {mediaType: "application/vnd.oci.image.manifest.v1+json", digest: $manifest, size: $size,
       platform: {architecture: $arch, os: "linux"},
       annotations: {"io.containerd.image.name": $ref, "org.opencontainers.image.ref.name": ($ref | split(":") | last)}}]}' >"$work/index.json"
  echo '{"imageLayoutVersion":"1.0.0"}' >"$work/oci-layout"
  tar --create --file "$work/image" --directory "$work" oci-layout index.json blobs
  mv -f "$work/image" "$out"
  rm -rf "$work"
}

# image_blob FOLDER FILE: moves FILE to where its content belongs, and prints its digest
image_blob() {
  local digest
  digest=$(sha256sum "$2")
  digest=${digest%% *}
  mv "$2" "$1/$digest"
  printf '%s' "$digest"
}

image_arch() {
  case $(uname -m) in
    x86_64) printf amd64 ;;
    aarch64) printf arm64 ;;
    *) uname -m ;;
  esac
}

# image_import REFERENCE: gives an archive to the lab's container runtime
image_import() {
  in_cell kubernetes ctr --address /run/containerd/containerd.sock --namespace k8s.io image import "$(image_file "$1")"
}
