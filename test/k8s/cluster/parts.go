package cluster

import (
	"fmt"
	"os"
	"path/filepath"
)

// pauseImage is the image of the first process of each pod.
const pauseImage = "carrel.example.com/pause:1"

// sub is a directory or file of the cluster.
func (c *Cluster) sub(names ...string) string {
	return filepath.Join(append([]string{c.dir}, names...)...)
}

func (c *Cluster) socket() string { return c.sub("containerd", "containerd.sock") }

// arguments are those of one part.
func (c *Cluster) arguments(name string) []string {
	pki := c.ca.file
	switch name {
	case "etcd":
		return []string{"--data-dir", c.sub("etcd"), "--listen-client-urls", etcdURL, "--advertise-client-urls",
			etcdURL, "--listen-peer-urls", etcdPeerURL, "--initial-advertise-peer-urls", etcdPeerURL,
			"--initial-cluster", "default=" + etcdPeerURL, "--unsafe-no-fsync", "--log-level", "warn"}
	case "kube-apiserver":
		return []string{"--etcd-servers=" + etcdURL, "--bind-address=0.0.0.0", "--secure-port=16443",
			"--advertise-address=" + NodeIP, "--tls-cert-file=" + pki("apiserver.crt"),
			"--tls-private-key-file=" + pki("apiserver.key"), "--client-ca-file=" + pki("ca.crt"),
			"--authorization-mode=Node,RBAC", "--service-cluster-ip-range=" + serviceRange,
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + pki("sa.pub"), "--service-account-signing-key-file=" + pki("sa.key"),
			"--kubelet-client-certificate=" + pki("kubelet-client.crt"),
			"--kubelet-client-key=" + pki("kubelet-client.key"),
			"--kubelet-preferred-address-types=InternalIP", "--allow-privileged=true",
			"--endpoint-reconciler-type=lease", "--cert-dir=" + c.sub("apiserver")}
	case "kube-controller-manager":
		return []string{"--kubeconfig=" + c.config, "--leader-elect=false", "--bind-address=127.0.0.1",
			"--secure-port=16257", "--service-account-private-key-file=" + pki("sa.key"),
			"--root-ca-file=" + pki("ca.crt"), "--cert-dir=" + c.sub("controllers")}
	case "kube-scheduler":
		return []string{"--kubeconfig=" + c.config, "--authentication-kubeconfig=" + c.config,
			"--authorization-kubeconfig=" + c.config, "--leader-elect=false", "--bind-address=127.0.0.1",
			"--secure-port=16259", "--cert-dir=" + c.sub("scheduler")}
	case "kube-proxy":
		return []string{"--config=" + c.sub("proxy.yaml"), "--hostname-override=node1"}
	case "containerd":
		return []string{"--config", c.sub("containerd.toml")}
	case "kubelet":
		return []string{"--config=" + c.sub("kubelet.yaml"), "--kubeconfig=" + c.config,
			"--hostname-override=node1", "--node-ip=" + NodeIP, "--root-dir=" + c.sub("kubelet"),
			"--cert-dir=" + c.sub("kubelet-certs"), "--volume-plugin-dir=" + c.sub("volume-plugins"), "--v=2"}
	case "agent-sandbox-controller":
		return []string{"--extensions", "--leader-elect=false", "--metrics-bind-address=127.0.0.1:18090",
			"--health-probe-bind-address=127.0.0.1:18091"}
	}
	panic("cluster: no part is called " + name)
}

// writeConfigs writes the files that the parts read.
func (c *Cluster) writeConfigs() error {
	for name, text := range map[string]string{
		"kubelet.yaml":        c.kubeletConfig(),
		"containerd.toml":     c.containerdConfig(),
		"proxy.yaml":          c.proxyConfig(),
		"cni/10-net.conflist": c.networkConfig(),
	} {
		if err := os.MkdirAll(filepath.Dir(c.sub(name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(c.sub(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// kubeletConfig lets version 1 of control groups pass, and starts no clean-up of images.
func (c *Cluster) kubeletConfig() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /%s
containerRuntimeEndpoint: unix://%s
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: false}
  x509: {clientCAFile: %q}
authorization: {mode: AlwaysAllow}
address: %s
port: 10250
healthzPort: 10248
readOnlyPort: 0
failSwapOn: false
makeIPTablesUtilChains: false
enforceNodeAllocatable: []
oomScoreAdj: 0
maxPods: 250
podLogsDir: %q
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%, imagefs.available: 1%%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
clusterDomain: cluster.local
resolvConf: /etc/resolv.conf
nodeStatusUpdateFrequency: 10s
`, c.group, c.socket(), c.ca.file("ca.crt"), NodeIP, c.sub("pod-logs"))
}

// containerdConfig asks for no lower score than the daemon's own for the killer of processes: that
// needs a capability which root may lack.
func (c *Cluster) containerdConfig() string {
	return fmt.Sprintf(`version = 3
root = %q
state = %q
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.nri.v1.nri",
  "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = %q
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = %q
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = %q
        SystemdCgroup = false
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%q]
    conf_dir = %q
`, c.sub("images"), c.sub("containerd"), c.socket(), pauseImage, filepath.Join(c.bin, "runc"), c.bin,
		c.sub("cni"))
}

func (c *Cluster) proxyConfig() string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: %q}
mode: iptables
clusterCIDR: %s
conntrack: {maxPerCore: 0}
metricsBindAddress: 127.0.0.1:10249
`, c.config, podRange)
}

func (c *Cluster) networkConfig() string {
	return fmt.Sprintf(`{"cniVersion":"1.0.0","name":"test","plugins":[
 {"type":"bridge","bridge":"pods0","isGateway":true,"ipMasq":false,"hairpinMode":true,
  "ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":%q}]],"routes":[{"dst":"0.0.0.0/0"}]}}
]}
`, c.sub("cni-state"), podRange)
}
