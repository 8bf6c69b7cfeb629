package k8s_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/k8s/cluster"
)

const (
	claims    = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxclaims"
	pools     = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxwarmpools"
	templates = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxtemplates"
	sandboxes = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes"
)

// claim makes a claim on a pool, waits until it is ready, and returns the sandbox's name and the
// time that it took.
func claim(t *testing.T, c *cluster.Cluster, pool, name string) (sandbox string, took time.Duration) {
	t.Helper()
	began := time.Now()
	var made struct {
		Metadata struct{ ResourceVersion string }
	}
	err := c.Post(t.Context(), claims, map[string]any{
		"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"warmPoolRef": map[string]any{"name": pool}}}, &made)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Until(t.Context(), claims, name, made.Metadata.ResourceVersion, func(text json.RawMessage) bool {
		var object struct {
			Status struct {
				cluster.Status
				Sandbox struct{ Name string }
			}
		}
		if json.Unmarshal(text, &object) != nil || object.Status.Is("Ready") != nil {
			return false
		}
		sandbox = object.Status.Sandbox.Name
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return sandbox, time.Since(began)
}

// full waits until a pool has so many ready pods.
func full(t *testing.T, c *cluster.Cluster, pool string, n int) {
	t.Helper()
	cluster.Eventually(t, "the pool is full", func() error {
		var object struct{ Status struct{ ReadyReplicas int } }
		if err := c.Read(t.Context(), pools+"/"+pool, &object); err != nil {
			return err
		}
		if object.Status.ReadyReplicas < n {
			return fmt.Errorf("%d of %d are ready", object.Status.ReadyReplicas, n)
		}
		return nil
	})
}

// dropPool removes a pool and its claims.
func dropPool(t *testing.T, c *cluster.Cluster, pool string, claimed ...string) {
	t.Helper()
	for _, name := range claimed {
		c.Delete(t, claims+"/"+name)
	}
	c.Delete(t, pools+"/"+pool)
	c.Delete(t, templates+"/"+pool)
}

// TestClaim deploys the chart's warm pool, claims a sandbox, and uses it by agent-sandbox's
// protocol.
func TestClaim(t *testing.T) {
	c := start(t)
	c.Apply(t, render(t, "warm", testValues, "sandboxesPerPod: one\n"))
	t.Cleanup(func() { dropPool(t, c, "warm", "first") })
	full(t, c, "warm", 3)
	sandbox, took := claim(t, c, "warm", "first")
	t.Logf("claim to ready: %v", took.Round(time.Millisecond))
	base := protocol(t, c, sandbox)
	if out := execute(t, base, "echo hello >file; cat file; id -un"); out != "hello\nuser\n" {
		t.Errorf("it says %q", out)
	}
	resp, err := http.Get(base + "/download/file")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("download: %s", resp.Status)
	}
}

// TestClients uses agent-sandbox's own Go and Python clients on the chart's pool.
func TestClients(t *testing.T) {
	testenv.Long(t, "needs a pool of its own")
	c := start(t)
	c.Apply(t, render(t, "client", testValues, "sandboxesPerPod: one\npool: {replicas: 1}\n"))
	t.Cleanup(func() { dropPool(t, c, "client") })
	dir := os.Getenv("CARREL_K8S")
	for name, command := range map[string][]string{
		"Go":     {filepath.Join(dir, "bin", "claimer"), "client"},
		"Python": {filepath.Join(dir, "python", "bin", "python"), "claimer.py", "client"},
	} {
		t.Run(name, func(t *testing.T) {
			full(t, c, "client", 1)
			cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
			cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "is content") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// protocol is the address of a sandbox's protocol.
func protocol(t *testing.T, c *cluster.Cluster, sandbox string) string {
	t.Helper()
	return "http://" + c.PodIP(t, sandbox) + ":8888"
}

// execute runs a line by agent-sandbox's protocol, and returns what it writes.
func execute(t *testing.T, base, line string) string {
	t.Helper()
	var out struct {
		Stdout, Stderr string
		ExitCode       int `json:"exit_code"`
	}
	if err := post(t.Context(), base+"/execute", "", map[string]string{"command": line}, &out); err != nil {
		t.Fatal(err)
	}
	if out.ExitCode != 0 {
		t.Fatalf("%s: %+v", line, out)
	}
	return out.Stdout
}

// TestSuspend shows that a Sandbox that is suspended and runs again has its memory: a process counts
// on, and a file in a tmpfs is there. Its pod and its container are new ones.
func TestSuspend(t *testing.T) {
	c := start(t)
	volume(t, c, "keep")
	objects := render(t, "keep", testValues, `
sandboxesPerPod: one
pool: {replicas: 1, volume: {size: 1Gi, storageClassName: keep}}
`)
	c.Apply(t, objects)
	t.Cleanup(func() { dropPool(t, c, "keep", "lasting") })
	full(t, c, "keep", 1)
	sandbox, _ := claim(t, c, "keep", "lasting")
	base := protocol(t, c, sandbox)
	execute(t, base, counter)
	execute(t, base, "echo in memory >/dev/shm/note; cat /proc/mounts | grep -q '/dev/shm tmpfs\\|/dev/shm.*tmpfs'")
	first := number(t, execute(t, base, "cat /tmp/count"))
	before := podUID(t, c, sandbox)

	began := time.Now()
	operate(t, c, sandbox, "Suspended")
	cluster.Eventually(t, "the pod is gone", func() error {
		if err := c.Read(t.Context(), cluster.PodPath(sandbox), nil); !cluster.IsMissing(err) {
			return fmt.Errorf("still there: %w", err)
		}
		return nil
	})
	suspended := time.Since(began)
	began = time.Now()
	operate(t, c, sandbox, "Running")
	cluster.Eventually(t, "the sandbox is ready again", func() error {
		var object struct{ Status cluster.Status }
		if err := c.Read(t.Context(), cluster.PodPath(sandbox), &object); err != nil {
			return err
		}
		return object.Status.Is("Ready")
	})
	t.Logf("suspended in %v, ready again in %v", suspended.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	if podUID(t, c, sandbox) == before {
		t.Error("the pod is the same one")
	}
	base = protocol(t, c, sandbox)
	if note := execute(t, base, "cat /dev/shm/note"); note != "in memory\n" {
		t.Errorf("the note says %q", note)
	}
	second := number(t, execute(t, base, "cat /tmp/count"))
	if second < first {
		t.Errorf("the counter was at %d and is at %d", first, second)
	}
	testenv.Eventually(t, "the counter goes on", func() bool {
		return number(t, execute(t, base, "cat /tmp/count")) > second
	})
}

func podUID(t *testing.T, c *cluster.Cluster, pod string) string {
	t.Helper()
	var object struct{ Metadata struct{ UID string } }
	if err := c.Read(t.Context(), cluster.PodPath(pod), &object); err != nil {
		t.Fatal(err)
	}
	return object.Metadata.UID
}

// operate sets what a Sandbox should do.
func operate(t *testing.T, c *cluster.Cluster, sandbox, mode string) {
	t.Helper()
	err := c.Patch(t.Context(), sandboxes+"/"+sandbox, map[string]any{"spec": map[string]any{"operatingMode": mode}})
	if err != nil {
		t.Fatal(err)
	}
}

// volume makes two volumes, directories of the node, of a class: one for the pod of a pool and one
// for the pod that takes its place.
func volume(t *testing.T, c *cluster.Cluster, class string) {
	t.Helper()
	c.Apply(t, `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: `+class+`}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
`)
	for i := range 2 {
		dir := filepath.Join(c.Dir(), "volumes", fmt.Sprint(class, i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		// Kubernetes gives other volumes the pod's group, but not a directory of the node.
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		c.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %s-%d}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: %s
  persistentVolumeReclaimPolicy: Retain
  hostPath: {path: %s}
`, class, i, class, dir))
	}
}

// plainPool is agent-sandbox's pool of pods with a small web server, and nothing of Carrel.
const plainPool = `
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxTemplate
metadata: {name: plain}
spec:
  networkPolicyManagement: Unmanaged
  podTemplate:
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 1
      containers:
        - name: web
          image: ` + busyboxImage + `
          command: [/usr/bin/busybox, httpd, -f, -p, "8888", -h, /www]
          ports: [{containerPort: 8888}]
          readinessProbe: {httpGet: {path: /, port: 8888}, periodSeconds: 1}
---
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxWarmPool
metadata: {name: plain}
spec: {replicas: 3, sandboxTemplateRef: {name: plain}}
`

// TestClaimLatency measures claims on full pools, in turns: on Carrel's pods, and on plain ones.
func TestClaimLatency(t *testing.T) {
	testenv.Long(t, "makes some forty pods")
	const rounds = 10
	c := start(t)
	c.Apply(t, render(t, "speed", testValues, "sandboxesPerPod: one\n"))
	c.Apply(t, plainPool)
	t.Cleanup(func() { dropPool(t, c, "speed"); dropPool(t, c, "plain") })
	times := map[string][]time.Duration{}
	for i := range rounds {
		for _, pool := range []string{"speed", "plain"} {
			full(t, c, "speed", 3)
			full(t, c, "plain", 3)
			name := fmt.Sprintf("%s-%d", pool, i)
			sandbox, took := claim(t, c, pool, name)
			times[pool] = append(times[pool], took)
			if pool == "speed" && !strings.Contains(execute(t, protocol(t, c, sandbox), "echo it works"), "it works") {
				t.Error("a claimed sandbox does not answer")
			}
			c.Delete(t, claims+"/"+name)
		}
	}
	for _, pool := range []string{"speed", "plain"} {
		slices.Sort(times[pool])
		t.Logf("%-5s claim to ready: p50 %v, p90 %v, max %v (n=%d)", pool, times[pool][rounds/2].Round(time.Millisecond),
			times[pool][rounds*9/10].Round(time.Millisecond), times[pool][rounds-1].Round(time.Millisecond), rounds)
	}
	// A claim must not be slower for having Carrel in its pod. The bound is wide: the machine is shared.
	if ours, plain := times["speed"][rounds/2], times["plain"][rounds/2]; ours > 3*plain+200*time.Millisecond {
		t.Errorf("a claim on our pods takes %v, on plain ones %v", ours, plain)
	}
}
