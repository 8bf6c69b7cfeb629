package k8s_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/k8s/cluster"
)

// TestNode deploys the chart with one node that has no front. It makes a sandbox of each tier with
// E2B's protocol, and runs a command in each.
func TestNode(t *testing.T) {
	c := start(t)
	c.Apply(t, render(t, "solo", testValues))
	t.Cleanup(func() { c.Delete(t, "/apis/apps/v1/namespaces/default/statefulsets/solo-node") })
	const node = "solo-node-0"
	c.Ready(t, cluster.PodPath(node))
	key, err := c.Exec(t.Context(), node, "cat", "/var/lib/carrel/data/api-key")
	if err != nil {
		t.Fatalf("read the key: %v\n%s", err, key)
	}
	base, key := "http://"+c.PodIP(t, node)+":7070", strings.TrimSpace(key)

	began := time.Now()
	id := e2bCreate(t, base, key)
	t.Logf("a sandbox by E2B's protocol, in a pod: %v", time.Since(began).Round(time.Millisecond))
	svc, err := client.New(base, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	if out := shell(t, svc, id, "uname -v; id -un; echo $((6*7))"); !strings.Contains(out, "\nuser\n42") {
		t.Errorf("it says %q", out)
	}
	t.Run("reach", func(t *testing.T) { unreachable(t, svc, id, c.PodIP(t, node)) })
	for _, tier := range []carrel.Tier{carrel.GVisor, carrel.NS, carrel.Sim} {
		t.Run(string(tier), func(t *testing.T) {
			box, err := svc.Create(t.Context(), carrel.CreateOptions{Tier: tier})
			if err != nil {
				t.Fatalf("%v (hint: %s)", err, carrel.HintOf(err))
			}
			if out := shell(t, svc, box.ID, "echo words >file; cat file"); out != "words\n" {
				t.Errorf("it says %q", out)
			}
			if tier == carrel.GVisor {
				keepsMemory(t, svc, box.ID)
			}
			if err := svc.Kill(t.Context(), box.ID); err != nil {
				t.Error(err)
			}
		})
	}
}

// unreachable tries the cluster from within a sandbox that may reach the internet: Kubernetes' API,
// and the daemon of its own pod.
func unreachable(t *testing.T, svc carrel.Service, id carrel.ID, pod string) {
	t.Helper()
	for what, addr := range map[string]string{"the API server": "10.96.0.1/443", "the daemon": pod + "/7070",
		"kubelet, by the network's gateway": "10.88.0.1/10250"} {
		line := "bash -c 'echo >/dev/tcp/" + addr + "' 2>&1 && echo reached || echo refused"
		if out := shell(t, svc, id, line); !strings.HasSuffix(out, "refused\n") {
			t.Errorf("%s: %s", what, out)
		}
	}
}

// keepsMemory pauses and resumes a sandbox in its pod.
func keepsMemory(t *testing.T, svc carrel.Service, id carrel.ID) {
	t.Helper()
	shell(t, svc, id, counter)
	first := shell(t, svc, id, "cat /tmp/count")
	if _, err := svc.Pause(t.Context(), id, carrel.PauseOptions{}); err != nil {
		t.Fatalf("pause: %v (hint: %s)", err, carrel.HintOf(err))
	}
	if _, _, err := svc.Resume(t.Context(), id, carrel.ResumeOptions{}); err != nil {
		t.Fatalf("resume: %v (hint: %s)", err, carrel.HintOf(err))
	}
	testenv.Eventually(t, "the counter goes on", func() bool {
		return number(t, shell(t, svc, id, "cat /tmp/count")) > number(t, first)
	})
}

// counter starts a process that counts in its memory and writes the number to a file.
const counter = `(i=1000; while :; do i=$((i+1)); echo $i >/tmp/count.new; mv /tmp/count.new /tmp/count; sleep 0.05; done) >/dev/null 2>&1 </dev/null &
until [ -s /tmp/count ]; do sleep 0.02; done`

// number is the counter's number. A counter that began anew would be below what it had.
func number(t *testing.T, text string) int {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(text, &n); err != nil || n <= 1000 {
		t.Fatalf("the counter says %q", text)
	}
	return n
}

// shell runs a line in a sandbox and returns its output.
func shell(t *testing.T, svc carrel.Service, id carrel.ID, line string) string {
	t.Helper()
	pc, err := svc.Computer(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	res, err := pc.Run(t.Context(), carrel.Command{Shell: line})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%s: %v, %+v", line, err, res)
	}
	return string(res.Stdout)
}

// e2bCreate makes a sandbox as E2B's SDKs do.
func e2bCreate(t *testing.T, base, key string) carrel.ID {
	t.Helper()
	var out struct {
		SandboxID carrel.ID `json:"sandboxID"`
	}
	err := post(t.Context(), base+"/sandboxes", key, map[string]any{"templateID": "base", "timeout": 300}, &out)
	if err != nil {
		t.Fatal(err)
	}
	return out.SandboxID
}

// post sends JSON to a daemon.
func post(ctx context.Context, url, key string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("X-API-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s: %w", url, errors.New(resp.Status+" "+string(answer)))
	}
	return json.Unmarshal(answer, into)
}
