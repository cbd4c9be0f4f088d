# shellcheck shell=bash
# What Kubernetes needs: Debian's container runtime, and the programs of Kubernetes built once from source.
# shellcheck disable=SC2034 # KUBE_BIN is used by up.sh

kubernetes_packages() { echo containerd runc containernetworking-plugins nftables iproute2 busybox-static gcc libc6-dev openssl curl jq; }

KUBE_VERSION=v1.36.4
KUBE_PROGRAMS=(etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy cluster-dns kubectl)

# kubernetes_find: sets KUBE_BIN to the folder of the programs, or fails
kubernetes_find() {
  local folder program
  for folder in "${KUBEBUILDER_ASSETS:-}" "$(kubernetes_build_folder)"; do
    [[ -n $folder ]] || continue
    for program in "${KUBE_PROGRAMS[@]}"; do
      # Folders made for API tests alone hold two or three of them; the DNS server is our own.
      [[ -x $folder/$program || ($program == cluster-dns && $folder == "${KUBEBUILDER_ASSETS:-}") ]] || continue 2
    done
    KUBE_BIN=$folder
    return 0
  done
  return 1
}

# The folder is named after the sources: changed sources are another program.
kubernetes_build_folder() {
  local key
  key=$(cat "$LAB_SRC"/kubernetes/{*.go,go.mod,go.sum} | sha256sum)
  printf '%s' "$LAB_CACHE/kubernetes-$KUBE_VERSION-${key:0:12}"
}

kubernetes_install() {
  kubernetes_find || kubernetes_build
  kubernetes_images
}

kubernetes_build() {
  local folder program t0 v=k8s.io/component-base/version
  command -v go >/dev/null || die "Kubernetes is built from source, and there is no \`go\`: install Go 1.26 or newer"
  require_space "$LAB_CACHE" 6 "the build of Kubernetes"
  folder=$(kubernetes_build_folder)
  rm -rf "$folder.new"
  mkdir -p "$folder.new"
  say "building Kubernetes $KUBE_VERSION from source, once: 8 minutes on two cores, a 150 MB program"
  t0=$(now_ms)
  (
    cd "$LAB_SRC/kubernetes"
    # Without -X it would call itself v0.0.0-master, and kubectl would warn about it.
    CGO_ENABLED=0 nice go build -trimpath -o "$folder.new/kube" -ldflags "-s -w \
      -X $v.gitVersion=$KUBE_VERSION -X $v.gitMajor=1 -X $v.gitMinor=36 -X $v.gitTreeState=clean" .
  ) || die "the build of Kubernetes failed: the messages above tell why"
  for program in "${KUBE_PROGRAMS[@]}"; do ln -s kube "$folder.new/$program"; done
  rm -rf "$folder"
  mv "$folder.new" "$folder"
  KUBE_BIN=$folder
  say "built in $(seconds_since "$t0") s: $folder"
}

# kubernetes_images: the sandbox of every pod, and a shell for tests, as archives in the cache
kubernetes_images() {
  local work key
  key=$(cat "$LAB_SRC/kubernetes/pause.c" "$LAB_SRC/lib/image.sh" | sha256sum)
  key=${key%% *}
  [[ -f $LAB_CACHE/images/.$key ]] && return
  work=$(mktemp -d)
  mkdir -p "$work/pause" "$work/busybox"/{bin,etc,tmp,root,proc,sys,dev}
  gcc -Os -static -s -o "$work/pause/pause" "$LAB_SRC/kubernetes/pause.c"
  image_archive localhost/pause:1 "$work/pause" '{"Cmd":["/pause"],"User":"65535:65535"}'
  cp "$(command -v busybox)" "$work/busybox/bin/busybox"
  local applet
  for applet in $("$work/busybox/bin/busybox" --list); do
    [[ $applet == busybox ]] || ln -s busybox "$work/busybox/bin/$applet"
  done
  echo 'root:x:0:0:root:/root:/bin/sh' >"$work/busybox/etc/passwd"
  echo 'root:x:0:' >"$work/busybox/etc/group"
  chmod 1777 "$work/busybox/tmp"
  image_archive localhost/busybox:1 "$work/busybox" '{"Cmd":["/bin/sh"]}'
  rm -rf "$work"
  touch "$LAB_CACHE/images/.$key"
}
