# shellcheck shell=bash
# One authority for the cluster, the certificates it signs, and a kubeconfig for each program.

KUBE_NODE=node1

kubernetes_pki() {
  local dir=$LAB/kubernetes/pki
  [[ -f $dir/complete ]] && return
  rm -rf "$dir"
  mkdir -m 700 "$dir"
  (
    cd "$dir"
    new_key ca
    openssl req -x509 -new -key ca.key -days 3650 -subj "/CN=lab-$LAB_NAME" -out ca.crt
    local ips="IP:127.0.0.1,IP:10.96.0.1,IP:$NODE_IP"
    certificate apiserver /CN=kube-apiserver "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,$ips"
    certificate kubelet-server "/CN=$KUBE_NODE" "DNS:$KUBE_NODE,$ips"
    certificate admin "/O=system:masters/CN=admin"
    certificate apiserver-kubelet-client "/O=system:masters/CN=apiserver-kubelet-client"
    certificate controller-manager /CN=system:kube-controller-manager
    certificate scheduler /CN=system:kube-scheduler
    certificate kubelet "/O=system:nodes/CN=system:node:$KUBE_NODE"
    certificate kube-proxy /CN=system:kube-proxy
    new_key sa
    openssl ec -in sa.key -pubout -out sa.pub
    local user
    for user in admin controller-manager scheduler kubelet kube-proxy; do kubeconfig "$user"; done
    touch complete
  ) >"$LAB/kubernetes/log/pki.log" 2>&1 || die "the cluster's certificates could not be made: see $LAB/kubernetes/log/pki.log"
}

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }

# certificate NAME SUBJECT [ALTERNATIVE-NAMES]
certificate() {
  new_key "$1"
  openssl req -new -key "$1.key" -subj "$2" -out "$1.csr"
  {
    echo "keyUsage=digitalSignature,keyEncipherment"
    echo "extendedKeyUsage=serverAuth,clientAuth"
    [[ -z ${3:-} ]] || echo "subjectAltName=$3"
  } >"$1.ext"
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile "$1.ext" -out "$1.crt"
  rm "$1.csr" "$1.ext"
}

# kubeconfig NAME: with the keys in it, so that the file alone is enough
kubeconfig() {
  cat >"$1.kubeconfig" <<END
apiVersion: v1
kind: Config
clusters:
- name: lab
  cluster:
    server: https://$NODE_IP:6443
    certificate-authority-data: $(base64 -w0 ca.crt)
users:
- name: $1
  user:
    client-certificate-data: $(base64 -w0 "$1.crt")
    client-key-data: $(base64 -w0 "$1.key")
contexts:
- name: lab
  context: {cluster: lab, user: $1}
current-context: lab
END
}
