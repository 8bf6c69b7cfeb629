package net

import (
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// kernelPackages are Debian's packages for what programs do that need a kernel of their own.
const kernelPackages = "docker.io,iptables,iproute2,e2fsprogs,ca-certificates,curl,fuse3,squashfs-tools,squashfuse,python3"

// kernelUses are scripts that need a kernel of their own, run by root, and what they print. The
// modules for them are loaded when the kernel asks for them.
var kernelUses = []use{
	{"overlay", `mount -t tmpfs none /mnt && cd /mnt && mkdir a b c d && echo below >a/f && mount -t overlay o -o lowerdir=a,upperdir=b,workdir=c d && echo above >d/f && cat a/f b/f; umount d; cd /; umount /mnt`, "below\nabove"},
	{"loop device", "truncate -s 64M /disk && mkfs.ext4 -q /disk && mount -o loop /disk /mnt && echo hello >/mnt/f && cat /mnt/f && umount /mnt", "hello"},
	{"FUSE", "mkdir -p /t/d && echo packed >/t/d/f && mksquashfs /t/d /t/s -quiet >/dev/null && squashfuse /t/s /mnt && grep -c fuse.squashfuse /proc/mounts && cat /mnt/f && fusermount3 -u /mnt", "1\npacked"},
	{"TUN", "ip tuntap add dev tun5 mode tun && ip addr add 10.99.0.1/24 dev tun5 && ip link set tun5 up && ip -br link show tun5", "tun5"},
	{"packet filter", "iptables -A OUTPUT -d 10.98.0.1 -m conntrack --ctstate NEW -j REJECT && iptables -S OUTPUT | tail -1; iptables -D OUTPUT -d 10.98.0.1 -m conntrack --ctstate NEW -j REJECT", "--ctstate NEW -j REJECT"},
	{"bridge", "ip link add br5 type bridge && ip link add ve5 type veth peer name ve6 && ip link set ve5 master br5 && ip -br link show master br5", "ve5"},
	{"control groups", "cd /sys/fs/cgroup && mkdir own && cat cgroup.controllers && rmdir own", "memory"},
	{"nested user namespaces", `unshare --user --map-root-user unshare --user --map-root-user --mount --pid --fork sh -c 'mount -t tmpfs none /mnt && echo $(id -u) $$'`, "0 1"},
	{"eBPF", "python3 -c \"$EBPF\"", "loaded"},
	{"no such module", "ip link add x5 type carrel 2>&1; true", "Unknown device type"},
}

// loadProgram loads a program of two instructions (r0 = 0, exit) as a socket filter.
const loadProgram = `
import ctypes
code = ctypes.create_string_buffer(bytes.fromhex("b700000000000000" "9500000000000000"))
text = ctypes.create_string_buffer(b"GPL")
log = ctypes.create_string_buffer(4096)
class Load(ctypes.Structure):
    _fields_ = [("type", ctypes.c_uint32), ("count", ctypes.c_uint32), ("code", ctypes.c_uint64), ("license", ctypes.c_uint64),
        ("level", ctypes.c_uint32), ("size", ctypes.c_uint32), ("log", ctypes.c_uint64), ("rest", ctypes.c_uint8 * 80)]
load = Load(1, 2, ctypes.addressof(code), ctypes.addressof(text), 1, 4096, ctypes.addressof(log))
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.syscall(321, 5, ctypes.byref(load), 48)
print("loaded" if fd >= 0 else "refused: %d %s" % (ctypes.get_errno(), log.value.decode()))
`

// startDocker starts Docker's daemon on a filesystem of its own: no overlay can lie on the
// sandbox's, which is one itself. It would wait only some seconds for a containerd of its own.
const startDocker = `set -e
mkdir -p /etc/docker /var/lib/docker
truncate -s 1G /docker.img
mkfs.ext4 -q /docker.img
mount -o loop /docker.img /var/lib/docker
echo '{"insecure-registries": ["registry.example.com:80"]}' >/etc/docker/daemon.json
(containerd >/var/log/containerd 2>&1 &)
for i in $(seq 400); do ctr version >/dev/null 2>&1 && break; sleep 0.5; done
(dockerd --containerd /run/containerd/containerd.sock >/var/log/dockerd 2>&1 &)
for i in $(seq 400); do docker info >/dev/null 2>&1 && break; sleep 0.5; done
docker info --format '{{.Driver}}, control groups {{.CgroupVersion}}, by {{.CgroupDriver}}' || { tail -30 /var/log/dockerd; exit 1; }
`

// TestMachineKernel runs programs in a virtual machine that need a kernel of their own: Docker with
// an image from a registry outside, and what Docker is made of.
func TestMachineKernel(t *testing.T) {
	testenv.Long(t, "it makes a template of Debian's packages, and Docker takes a minute in an emulated machine")
	o := newOutside(t)
	registry, image := daemontest.ServeSmall(t)
	to := &url.URL{Scheme: "http", Host: registry}
	o.serve(t, "registry.example.com", "203.0.113.70", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }})
	h := openMachines(t, o)
	root := filepath.Join(t.TempDir(), "root")
	out, err := exec.Command("../../internal/tools/debianroot.sh", root, kernelPackages).CombinedOutput()
	testenv.Need(t, "apt", err)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := h.CLI("template", "import", "kernel", root).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sb, err := h.svc.Create(t.Context(), carrel.CreateOptions{Template: "kernel", Timeout: time.Hour,
		Limits:  carrel.Limits{MemoryMB: 1024, DiskMB: 4096},
		Network: carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"registry.example.com"}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := h.svc.Computer(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	must := func(t *testing.T, script, want string) {
		t.Helper()
		began := time.Now()
		r, err := c.Run(t.Context(), carrel.Command{Shell: script, User: "root", Timeout: 8 * time.Minute, Env: map[string]string{"EBPF": loadProgram}})
		if err != nil {
			t.Fatal(err)
		}
		if out := string(r.Stdout) + string(r.Stderr); r.ExitCode != 0 || !strings.Contains(out, want) {
			t.Errorf("%s\nexit code %d, want 0 and %q in:\n%s", script, r.ExitCode, want, out)
		} else if testing.Verbose() {
			t.Logf("%v: %s", time.Since(began).Round(time.Millisecond), strings.TrimSpace(out))
		}
	}
	for _, u := range kernelUses {
		t.Run(u.name, func(t *testing.T) { must(t, u.script, u.want) })
	}
	name := "registry.example.com:80" + strings.TrimPrefix(image, registry)
	for _, u := range []use{
		{"dockerd", startDocker, "overlay2, control groups 2"},
		{"pull", "docker pull -q " + name, name},
		{"run", "docker run --rm -m 64m " + name + ` sh -c 'echo memory $(cat /sys/fs/cgroup/memory.max), $OF_IMAGE'`, "memory 67108864, yes"},
		{"network", "docker run --rm " + name + ` bash -c 'exec 3<>/dev/tcp/registry.example.com/80; printf "GET /v2/ HTTP/1.0\r\nHost: registry.example.com\r\n\r\n" >&3; head -1 <&3'`, "200 OK"},
		{"published port", "docker run -d --name web -p 8080:80 " + name + ` sleep 1000 && docker inspect -f '{{(index (index .NetworkSettings.Ports "80/tcp") 0).HostPort}}' web`, "8080"},
		{"policy", "docker run --rm " + name + ` bash -c '(exec 3<>/dev/tcp/198.51.100.20/443 && echo GET >&3 && head -1 <&3) 2>/dev/null && echo reached || echo stopped'`, ""},
	} {
		t.Run(u.name, func(t *testing.T) { must(t, u.script, u.want) })
	}
	if n := o.strays.Load(); n > 0 {
		t.Errorf("%d requests of containers reached a server that no policy allowed", n)
	}
}
