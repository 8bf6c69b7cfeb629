// Package k8s_test runs Carrel in pods of a real Kubernetes cluster: the Helm chart, node pods with
// sandboxes of each tier, and agent-sandbox's claims on pods that keep one sandbox.
package k8s_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/k8s/cluster"
)

func TestMain(m *testing.M) { cluster.Main(m) }

const (
	// carrelImage is the program beside a shell and a few tools, which sandboxes find as "host".
	carrelRepository = "carrel.example.com/carrel"
	carrelTag        = "test"
	carrelImage      = carrelRepository + ":" + carrelTag
	// busyboxImage is the pod that claims are compared with.
	busyboxImage = "carrel.example.com/busybox:1"

	chartDir = "../../deploy/helm/carrel"
)

// tools are the programs of the image.
var tools = []string{"bash", "sh", "cat", "ls", "sleep", "head", "rm", "mkdir", "mv", "cp", "echo", "env", "mount",
	"chmod", "grep", "tr", "chown", "stat", "id", "seq", "wc", "touch", "sha256sum", "ln", "true", "uname", "date", "ps", "tail"}

var imported sync.Once

// start returns the cluster, with the images of the tests.
func start(t *testing.T) *cluster.Cluster {
	t.Helper()
	c := cluster.Get(t)
	program, err := filepath.Abs("../../bin/carrel")
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(program)
	testenv.Need(t, "k8s", err)
	busybox, err := exec.LookPath("busybox")
	testenv.Need(t, "k8s", err)
	imported.Do(func() {
		err := c.Import(t.Context(), cluster.Image{Ref: carrelImage, Entrypoint: []string{"/usr/bin/carrel"},
			Env: []string{"HOME=/root"}, Programs: tools,
			Files: map[string]string{"/usr/bin/carrel": program},
			Texts: map[string]string{
				"/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "/etc/group": "root:x:0:\n",
				"/root/.keep": "", "/home/.keep": "", "/var/lib/carrel/.keep": "",
			}})
		if err != nil {
			t.Error(err)
		}
		err = c.Import(t.Context(), cluster.Image{Ref: busyboxImage, Files: map[string]string{"/usr/bin/busybox": busybox},
			Texts: map[string]string{"/www/index.html": "ok\n"}})
		if err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return c
}

// testValues are the chart's values that fit the small cluster.
const testValues = `
image: {repository: ` + carrelRepository + `, tag: ` + carrelTag + `}
front: {enabled: false}
node:
  replicas: 1
  volume: {size: ""}
  resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 3Gi}}
  extraArgs: [--base=host, --warm=0, --blank-sentries=1]
  drainSeconds: 30
pool:
  replicas: 3
  volume: {size: ""}
  resources: {requests: {cpu: 10m, memory: 64Mi}, limits: {memory: 1Gi}}
  extraArgs: [--base=host]
  pauseSeconds: 20
`

// render returns the objects of the chart for the default namespace.
func render(t *testing.T, release string, values ...string) string {
	t.Helper()
	return renderIn(t, "default", release, values...)
}

// renderIn returns the objects of the chart for a namespace.
func renderIn(t *testing.T, namespace, release string, values ...string) string {
	t.Helper()
	args := []string{"-namespace", namespace, "-release", release}
	for i, text := range values {
		name := filepath.Join(t.TempDir(), fmt.Sprintf("values-%d.yaml", i))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "-values", name)
	}
	var said bytes.Buffer
	cmd := exec.Command(filepath.Join(os.Getenv("CARREL_K8S"), "bin", "render"), append(args, chartDir)...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("render: %v\n%s", err, said.String())
	}
	return string(out)
}
