#!/usr/bin/env bash
# k8s.sh DIR builds a Kubernetes cluster for tests into DIR: its programs into DIR/bin, and the
# definitions of agent-sandbox's objects into DIR/crds. The modules internal/tools/k8s and
# internal/tools/runc say which versions. With nothing cached it takes minutes; Go's cache keeps the
# work. GO names the go command.
set -euo pipefail

mkdir -p "$1"
dir=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
go=${GO:-go}
mkdir -p "$dir/bin" "$dir/crds"

# The flag is needed: adding what is missing would change versions and compile everything again.
export GOFLAGS="-trimpath -mod=readonly"

cd "$here/k8s"
version=$($go list -m -f '{{.Version}}' k8s.io/kubernetes)
IFS=. read -r major minor _ <<<"${version#v}"
stamp=
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	stamp+=" -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor"
done
CGO_ENABLED=0 $go build -ldflags "-s -w$stamp" -o "$dir/bin/" ./hyper ./render ./pause ./claimer tool
for part in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl containerd; do
	ln -sf hyper "$dir/bin/$part"
done
sandbox=$($go list -m -f '{{.Dir}}' sigs.k8s.io/agent-sandbox)
install -m 644 "$sandbox"/k8s/crds/*.yaml "$dir/crds/"

# The one program with C in it: it needs libseccomp.
cd "$here/runc"
CGO_ENABLED=1 $go build -tags seccomp -ldflags '-s -w' -o "$dir/bin/" tool
touch "$dir/built"
