// Package cluster runs a real Kubernetes cluster of one node inside a test: etcd, the API server,
// the controllers, the scheduler, kubelet, containerd, a CNI network and agent-sandbox's
// controller. Its pods are real containers.
//
// # Where it runs
//
// [Main] starts the test binary again in mount, PID, network, IPC and host-name namespaces of its
// own, and runs the tests there. So the ports can be fixed, the host's network and files stay as
// they are, and nothing outlives the tests: when the first process of the PID namespace ends, the
// kernel kills all others. That also holds when a test panics or its process is killed. Three
// sysctls that kubelet would set for the whole machine are hidden behind files with the values that
// it wants. Only control groups are outside; Main makes one directory for all pods in each
// hierarchy, and removes it at the end.
//
// # What it needs
//
// Root, and the bundle that "make bin/k8s" builds; the variable CARREL_K8S names its directory.
// Images are made by [Image] and imported into containerd. No registry is asked.
package cluster
