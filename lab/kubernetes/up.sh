# shellcheck shell=bash
# Kubernetes: API server, controllers, scheduler and one node. Each step is skipped when it is done already, so the same
# function starts and repairs.
. "$LAB_SRC/kubernetes/pki.sh"
. "$LAB_SRC/kubernetes/config.sh"
. "$LAB_SRC/kubernetes/cgroups.sh"
. "$LAB_SRC/lib/image.sh"

kubernetes_up() {
  if [[ -n ${BRIDGE_TEST_KUBECONFIG:-} ]]; then
    [[ -r $BRIDGE_TEST_KUBECONFIG ]] || die "BRIDGE_TEST_KUBECONFIG is $BRIDGE_TEST_KUBECONFIG, which cannot be read"
    step "kubernetes: BRIDGE_TEST_KUBECONFIG is set: that cluster is used, none is started"
    return
  fi
  kubernetes_find || die "the programs of Kubernetes are not built: run lab/install kubernetes"
  local pki=$LAB/kubernetes/pki
  mkdir -p "$LAB/kubernetes/log"
  kubernetes_cgroups_up
  kubernetes_pki
  kubernetes_config
  cell_up kubernetes

  kube_part etcd 2379 --data-dir "$LAB/kubernetes/state/etcd" --name lab --unsafe-no-fsync --log-level warn \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
    --initial-cluster lab=http://127.0.0.1:2380
  kubernetes_runtime_up &
  local runtime=$!
  part_ready kubernetes etcd in_cell kubernetes curl -sf --max-time 20 http://127.0.0.1:2379/health

  kube_part kube-apiserver 6443 --etcd-servers=http://127.0.0.1:2379 --secure-port=6443 --advertise-address="$NODE_IP" \
    --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" --client-ca-file="$pki/ca.crt" \
    --kubelet-certificate-authority="$pki/ca.crt" --kubelet-client-certificate="$pki/apiserver-kubelet-client.crt" \
    --kubelet-client-key="$pki/apiserver-kubelet-client.key" --kubelet-preferred-address-types=InternalIP \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local --service-account-key-file="$pki/sa.pub" \
    --service-account-signing-key-file="$pki/sa.key" --service-cluster-ip-range=10.96.0.0/16 \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true --v=1
  part_ready kubernetes "kube-apiserver etcd" kube_get /readyz
  step "kubernetes: API server answers"

  # At the default rate the controllers need 4.5 s to start.
  kube_part kube-controller-manager 10257 --kubeconfig="$pki/controller-manager.kubeconfig" --bind-address=127.0.0.1 \
    --use-service-account-credentials --root-ca-file="$pki/ca.crt" --service-account-private-key-file="$pki/sa.key" \
    --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" --allocate-node-cidrs=false \
    --leader-elect=false --kube-api-qps=500 --kube-api-burst=1000 --v=1
  kube_part kube-scheduler 10259 --kubeconfig="$pki/scheduler.kubeconfig" --bind-address=127.0.0.1 \
    --leader-elect=false --kube-api-qps=500 --kube-api-burst=1000 --v=1
  wait "$runtime" || die "the container runtime did not come up"
  kube_part kubelet 10250 --config="$LAB/kubernetes/etc/kubelet.yaml" --kubeconfig="$pki/kubelet.kubeconfig" \
    --root-dir="$LAB/kubernetes/state/kubelet" --hostname-override="$KUBE_NODE" --node-ip="$NODE_IP" --v=2
  kube_part kube-proxy 10256 --config="$LAB/kubernetes/etc/kube-proxy.yaml" --v=2
  if [[ -x $KUBE_BIN/cluster-dns ]]; then
    kube_part cluster-dns '' --kubeconfig="$pki/admin.kubeconfig" --listen="$NODE_IP:53"
  fi

  part_ready kubernetes "kube-controller-manager kube-apiserver etcd" kube_get /api/v1/namespaces/default/serviceaccounts/default
  part_ready kubernetes "kube-proxy kube-apiserver etcd" in_cell kubernetes curl -sf --max-time 20 http://127.0.0.1:10256/healthz
  part_ready kubernetes "kubelet containerd kube-apiserver etcd" node_ready
  step "kubernetes: node ready"
}

# kube_part NAME PORT ARGUMENT...: starts one of the programs, if it does not run
kube_part() {
  local name=$1 port=$2
  shift 2
  alive "$LAB/kubernetes/run/$name.pid" && return
  [[ -z $port ]] || port_free "$port" "$name"
  part_up kubernetes "$name" env PATH="$KUBE_BIN:/usr/sbin:/usr/bin:/sbin:/bin" "$name" "$@"
}

kubernetes_runtime_up() {
  part_up kubernetes containerd containerd --config "$LAB/kubernetes/etc/containerd.toml" --log-level info
  part_ready kubernetes containerd in_cell kubernetes ctr --address /run/containerd/containerd.sock version
  local archive loaded=$LAB/kubernetes/run/images
  for archive in "$LAB_CACHE"/images/*.tar; do
    # An archive that was made again since is loaded again.
    [[ -f $loaded/${archive##*/} && ! $archive -nt $loaded/${archive##*/} ]] && continue
    in_cell kubernetes ctr --address /run/containerd/containerd.sock --namespace k8s.io image import "$archive" \
      >>"$LAB/kubernetes/log/images.log" 2>&1 || die "the image $archive could not be loaded: see $LAB/kubernetes/log/images.log"
    mkdir -p "$loaded"
    touch -r "$archive" "$loaded/${archive##*/}"
  done
}

# kube_get PATH: asks the API server as administrator
kube_get() {
  local pki=$LAB/kubernetes/pki
  curl -sf --max-time 10 --cacert "$pki/ca.crt" --cert "$pki/admin.crt" --key "$pki/admin.key" "https://$NODE_IP:6443$1"
}

node_ready() {
  kube_get "/api/v1/nodes/$KUBE_NODE" |
    jq -e 'any(.status.conditions[]; .type == "Ready" and .status == "True")'
}

kubernetes_down() {
  # Nothing has to end in order: all state is in memory and goes with the cell.
  cell_down kubernetes
  kubernetes_cgroups_down
}

kubernetes_env() {
  if [[ -n ${BRIDGE_TEST_KUBECONFIG:-} ]]; then
    echo "KUBECONFIG=$BRIDGE_TEST_KUBECONFIG"
    return
  fi
  kubernetes_find || return 0
  echo "KUBECONFIG=$LAB/kubernetes/pki/admin.kubeconfig"
  echo "BRIDGE_LAB_KUBECTL=$KUBE_BIN/kubectl"
  echo "BRIDGE_LAB_POD_CIDR=$POD_CIDR"
}
