# shellcheck shell=bash
# The configuration files of the node's programs.

kubernetes_config() {
  local etc=$LAB/kubernetes/etc pki=$LAB/kubernetes/pki state=$LAB/kubernetes/state
  mkdir -p "$etc/cni"

  # restrict_oom_score_adj: without CAP_SYS_RESOURCE no sandbox would start otherwise.
  put "$etc/containerd.toml" <<END
version = 2
root = "$state/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$etc/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "$(command -v runc)"
END

  put "$etc/cni/10-bridge.conflist" <<END
{"cniVersion": "1.0.0", "name": "lab", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "$POD_CIDR"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
END

  # failCgroupV1: since 1.35 a node on cgroup v1 has to be asked for.
  # evictionHard: a machine with a nearly full disk is no reason to evict the lab's pods, whose files are in memory.
  # eventRecordQPS 0 is "no limit": tests look for events.
  put "$etc/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /$(kubernetes_cgroup)
failSwapOn: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $pki/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $pki/kubelet-server.crt
tlsPrivateKeyFile: $pki/kubelet-server.key
clusterDomain: cluster.local
clusterDNS: [$NODE_IP]
maxPods: 200
kubeAPIQPS: 200
kubeAPIBurst: 400
eventRecordQPS: 0
evictionHard: {memory.available: 100Mi, nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}
imageGCHighThresholdPercent: 100
END

  # conntrack at 0: leave the machine's settings alone.
  put "$etc/kube-proxy.yaml" <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: $pki/kube-proxy.kubeconfig}
hostnameOverride: $KUBE_NODE
clusterCIDR: $POD_CIDR
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
metricsBindAddress: 127.0.0.1:10249
END
}
