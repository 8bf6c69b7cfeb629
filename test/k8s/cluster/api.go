package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// Status is the part of an object's status that most kinds have.
type Status struct {
	Conditions []Condition `json:"conditions"`
}

// Condition is one condition of an object.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Is returns an error unless a condition is true. The error shows all of them.
func (s Status) Is(condition string) error {
	for _, c := range s.Conditions {
		if c.Type == condition && c.Status == "True" {
			return nil
		}
	}
	return fmt.Errorf("not yet %s: %+v", condition, s.Conditions)
}

// StatusError is an answer of the API server that is not a success.
type StatusError struct {
	Code int
	Body string
}

func (e *StatusError) Error() string { return fmt.Sprintf("%d: %s", e.Code, e.Body) }

// IsMissing says whether the API server answered that an object does not exist.
func IsMissing(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == http.StatusNotFound
}

// call makes one request to the API server and decodes the answer into into.
func (c *Cluster) call(ctx context.Context, method, path, kind string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, apiURL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return &StatusError{Code: resp.StatusCode, Body: string(text)}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// Read reads one object, or a list of them, by its path.
func (c *Cluster) Read(ctx context.Context, path string, into any) error {
	return c.call(ctx, http.MethodGet, path, "", nil, into)
}

// Post creates an object.
func (c *Cluster) Post(ctx context.Context, path string, object, into any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, path, "application/json", body, into)
}

// Patch merges a change into an object.
func (c *Cluster) Patch(ctx context.Context, path string, change any) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPatch, path, "application/merge-patch+json", body, nil)
}

// Eventually waits until try returns nil, and fails the test after minutes. Pods start in less than
// a second, but on a busy machine everything that they wait for adds up.
func Eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	if err := testenv.Within(context.WithoutCancel(t.Context()), podPatience, try); err != nil {
		t.Fatalf("waited in vain for: %s: %v", what, err)
	}
}

// Delete deletes an object, and waits until it is gone.
func (c *Cluster) Delete(t testing.TB, path string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // it is also called in clean-ups
	if err := c.call(ctx, http.MethodDelete, path, "", nil, nil); err != nil && !IsMissing(err) {
		t.Fatal(err)
	}
	Eventually(t, path+" is gone", func() error {
		if err := c.Read(ctx, path, nil); !IsMissing(err) {
			return errors.Join(err, errors.New("still there"))
		}
		return nil
	})
}

// Ready waits until an object's condition Ready is true.
func (c *Cluster) Ready(t testing.TB, path string) {
	t.Helper()
	c.Wait(t, path, "Ready")
}

// Wait waits until a condition of an object is true.
func (c *Cluster) Wait(t testing.TB, path, condition string) {
	t.Helper()
	Eventually(t, path+" is "+condition, func() error {
		var object struct{ Status Status }
		if err := c.Read(t.Context(), path, &object); err != nil {
			return err
		}
		return object.Status.Is(condition)
	})
}

// Kill ends a pod of the default namespace at once, as a broken machine would: its processes are
// killed first, because kubelet gives even a pod without grace two seconds to end in good order.
func (c *Cluster) Kill(t testing.TB, pod string) {
	t.Helper()
	var object struct{ Metadata struct{ UID string } }
	if err := c.Read(t.Context(), PodPath(pod), &object); err != nil {
		t.Fatal(err)
	}
	n, err := killGroup(object.Metadata.UID)
	if err != nil || n == 0 {
		t.Fatalf("kill the processes of %s: %d killed, %v", pod, n, err)
	}
	out, err := c.kubectl(t.Context(), "delete", "pod", pod, "--grace-period=0", "--force", "--ignore-not-found").CombinedOutput()
	if err != nil {
		t.Fatalf("kill %s: %v\n%s", pod, err, out)
	}
}

// killGroup kills the processes in the control groups of a pod. The tests' PID namespace has no
// others than the cluster's.
func killGroup(uid string) (n int, err error) {
	if uid == "" {
		return 0, errors.New("the pod has no UID")
	}
	list, err := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, name := range list {
		text, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(text), "pod"+uid) {
			continue // it has ended, or is another pod's
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
			n++
		}
	}
	return n, err
}

// Apply creates or changes the objects of a YAML text.
func (c *Cluster) Apply(t testing.TB, yaml string) {
	t.Helper()
	cmd := c.kubectl(t.Context(), "apply", "--server-side", "--force-conflicts", "-f", "-")
	cmd.Stdin = strings.NewReader(yaml)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
}

// Refused applies objects that the API server should refuse, and returns its reason.
func (c *Cluster) Refused(t testing.TB, yaml string) string {
	t.Helper()
	cmd := c.kubectl(t.Context(), "apply", "--server-side", "-f", "-")
	cmd.Stdin = strings.NewReader(yaml)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("the API server took\n%s", yaml)
	}
	return string(out)
}

// Exec runs a program in a pod of the default namespace, and returns its output.
func (c *Cluster) Exec(ctx context.Context, pod string, args ...string) (string, error) {
	out, err := c.kubectl(ctx, append([]string{"exec", pod, "--"}, args...)...).CombinedOutput()
	return string(out), err
}

// Logs returns what a pod of the default namespace has said.
func (c *Cluster) Logs(ctx context.Context, pod string) string {
	out, _ := c.kubectl(ctx, "logs", pod, "--all-containers", "--tail=60").CombinedOutput()
	return string(out)
}

// PodIP returns a pod's address. The tests and the pods are on one network.
func (c *Cluster) PodIP(t testing.TB, pod string) string {
	t.Helper()
	var object struct{ Status struct{ PodIP string } }
	if err := c.Read(t.Context(), PodPath(pod), &object); err != nil {
		t.Fatal(err)
	}
	return object.Status.PodIP
}

// PodPath is the path of a pod in the default namespace.
func PodPath(name string) string { return "/api/v1/namespaces/default/pods/" + url.PathEscape(name) }

// Dir is a directory that ends with the cluster.
func (c *Cluster) Dir() string { return c.dir }

// Kubeconfig is a file with which an administrator's programs find the API server.
func (c *Cluster) Kubeconfig() string { return c.config }

func (c *Cluster) kubectl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.config, "HOME="+c.dir)
	return cmd
}

// installKinds installs the definitions of agent-sandbox's objects.
func (c *Cluster) installKinds(ctx context.Context, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no definitions in %s: %w", dir, errors.Join(err, os.ErrNotExist))
	}
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		group, plural, ok := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".yaml"), "_")
		if !ok {
			return fmt.Errorf("%s is not called GROUP_PLURAL.yaml", file)
		}
		name := plural + "." + group
		err = c.call(ctx, http.MethodPatch, path+name+"?fieldManager=test&force=true",
			"application/apply-patch+yaml", text, nil)
		if err != nil {
			return fmt.Errorf("install %s: %w", name, err)
		}
		err = testenv.Within(ctx, startPatience, func() error {
			var kind struct{ Status Status }
			if err := c.Read(ctx, path+name, &kind); err != nil {
				return err
			}
			return kind.Status.Is("Established")
		})
		if err != nil {
			return fmt.Errorf("install %s: %w", name, err)
		}
	}
	return nil
}

// logFile is where a part's output goes.
func (c *Cluster) logFile(part string) string { return c.sub("log", part+".log") }

// tails returns the last lines of all parts.
func (c *Cluster) tails() string {
	var out strings.Builder
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.parts {
		text, _ := os.ReadFile(c.logFile(p.name))
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		fmt.Fprintf(&out, "-- %s\n%s\n", p.name, strings.Join(lines[max(0, len(lines)-12):], "\n"))
	}
	return out.String()
}

// Explain logs what a failed test needs: the events and the pods. [Get] has it called after the
// test's own clean-ups; a test whose pods are gone by then calls it earlier.
func (c *Cluster) Explain(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, args := range [][]string{
		{"get", "pods", "-A", "-o", "wide"}, {"get", "events", "-A", "--sort-by=.lastTimestamp"},
	} {
		out, _ := c.kubectl(ctx, args...).CombinedOutput()
		if len(out) > 12000 {
			out = out[len(out)-12000:]
		}
		t.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
	}
	var pods struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := c.Read(ctx, "/api/v1/namespaces/default/pods", &pods); err != nil {
		return
	}
	for _, pod := range pods.Items {
		t.Logf("-- %s said\n%s", pod.Metadata.Name, c.Logs(ctx, pod.Metadata.Name))
	}
}
