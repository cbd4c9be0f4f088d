# shellcheck shell=bash
# What the lab's cluster promises.

kubernetes_check() {
  if [[ -n ${BRIDGE_TEST_KUBECONFIG:-} ]]; then
    say "BRIDGE_TEST_KUBECONFIG is set: the lab's own cluster is not checked"
    return
  fi
  kubernetes_find
  export KUBECONFIG=$LAB/kubernetes/pki/admin.kubeconfig
  K=("$KUBE_BIN/kubectl" --cache-dir="$work/cache" --namespace=lab-check)
  check "kubernetes: the API server is $KUBE_VERSION" kube_version
  check "kubernetes: a namespace gets its service account" kube_namespace
  check "kubernetes: manifests are applied" "${K[@]}" apply -f "$LAB_SRC/kubernetes/check.yaml"
  check "kubernetes: a pod runs to completion and its log is read" kube_pod_log
  check "kubernetes: a memory limit is enforced" \
    "${K[@]}" wait --for=jsonpath='{.status.containerStatuses[0].state.terminated.reason}'=OOMKilled pod/oom --timeout=60s
  check "kubernetes: a Deployment with probes and a mounted ConfigMap becomes available" "${K[@]}" rollout status deploy/web --timeout=60s
  check "kubernetes: a command runs in a pod" kube_says from-configmap "${K[@]}" exec deploy/web -- cat /data/message
  check "kubernetes: a pod reaches a Service by its DNS name" \
    kube_says from-configmap "${K[@]}" exec deploy/web -- wget -qO- http://web/index.html
  check "kubernetes: a client in a pod reaches the API by its service account" kube_in_cluster
  check "kubernetes: and may not do what its role does not allow" kube_in_cluster_refused
  check "kubernetes: a pod that breaks the namespace's security level is refused" kube_restricted
  local port what
  for what in slurm:6820 slurm-purge:16820 ray:8265 s3:9000; do
    port=${what#*:}
    [[ ! -d $LAB/${what%:*} ]] || check "kubernetes: a pod reaches ${what%:*}" \
      kube_says 'HTTP/1\.[01] [234]' "${K[@]}" exec deploy/web -- sh -c "wget -qSO- http://$NODE_IP:$port/ 2>&1 || true"
  done
  check "kubernetes: a namespace is deleted with all that is in it" "${K[@]}" delete namespace lab-check --timeout=90s
}

kube_version() { [[ $(kube_get /version | jq -r .gitVersion) == "$KUBE_VERSION" ]]; }

kube_namespace() {
  "${K[@]}" delete namespace lab-check --ignore-not-found --timeout=90s
  "${K[@]}" create namespace lab-check
  wait_for 20 "the default service account" "${K[@]}" get serviceaccount default
}

# kube_says PATTERN COMMAND...
kube_says() {
  local pattern=$1 output
  shift
  output=$("$@")
  echo "$output"
  grep -qE "$pattern" <<<"$output"
}

kube_pod_log() {
  "${K[@]}" wait --for=jsonpath='{.status.phase}'=Succeeded pod/hello --timeout=60s
  kube_says '^hello from a pod$' "${K[@]}" logs hello
}

kube_in_cluster() {
  # The lab's own kubectl, seen in the pod through a mount: no image of its size has to be loaded.
  sed "s|@KUBECTL@|$(readlink -f "$KUBE_BIN/kubectl")|" "$LAB_SRC/kubernetes/check-client.yaml" | "${K[@]}" apply -f -
  "${K[@]}" wait --for=jsonpath='{.status.phase}'=Succeeded pod/client --timeout=60s
  kube_says '^deployment.apps/web$' "${K[@]}" logs client
}

kube_in_cluster_refused() { kube_says 'forbidden' "${K[@]}" logs client; }

kube_restricted() {
  "${K[@]}" label namespace lab-check pod-security.kubernetes.io/enforce=restricted
  local output
  output=$("${K[@]}" run root --image=localhost/busybox:1 --restart=Never 2>&1) && return 1
  "${K[@]}" label namespace lab-check pod-security.kubernetes.io/enforce-
  grep -q 'violates PodSecurity "restricted' <<<"$output"
}
