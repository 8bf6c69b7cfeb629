package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
)

const (
	serviceIP     = "10.96.0.1" // of the API server, inside the cluster
	serviceRange  = "10.96.0.0/16"
	podRange      = "10.88.0.0/22"
	apiURL        = "https://127.0.0.1:16443"
	etcdURL       = "http://127.0.0.1:23790"
	etcdPeerURL   = "http://127.0.0.1:23800"
	controllerUp  = "http://127.0.0.1:18091/readyz" // of agent-sandbox
	startPatience = 3 * time.Minute
	podPatience   = 3 * time.Minute
)

// Cluster is a cluster that runs. It is safe for concurrent use.
type Cluster struct {
	dir    string // for all files
	bin    string // the bundle's programs
	group  string // the control group of all pods
	ca     *authority
	config string // the administrator's kubeconfig
	client *http.Client

	mu    sync.Mutex
	parts []*part // in the order of their start
}

// part is one process of the cluster.
type part struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // set before ended is closed
}

var (
	sharedOnce sync.Once
	shared     *Cluster
	sharedErr  error
)

// Get returns the cluster of this test binary, and starts it at the first call. Where it can't run,
// the test is skipped.
func Get(t testing.TB) *Cluster {
	t.Helper()
	testenv.Need(t, "k8s", missing())
	if os.Getenv(stageVar) != stageTests {
		t.Fatal("this package has no TestMain that calls cluster.Main")
	}
	sharedOnce.Do(func() { shared, sharedErr = start() })
	if sharedErr != nil {
		t.Fatalf("start cluster: %v", sharedErr)
	}
	t.Cleanup(func() {
		if t.Failed() {
			shared.Explain(t)
		}
	})
	return shared
}

// stopShared ends the cluster's parts, last first. Pods end with the PID namespace.
func stopShared() {
	if shared == nil {
		return
	}
	for i := len(shared.parts) - 1; i >= 0; i-- {
		p := shared.parts[i]
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// start starts all parts and returns when the node is ready.
func start() (*Cluster, error) {
	bundle, err := filepath.Abs(os.Getenv(bundleVar))
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: os.Getenv(scratchVar), bin: filepath.Join(bundle, "bin"), group: os.Getenv(groupVar)}
	if c.ca, err = newAuthority(filepath.Join(c.dir, "pki")); err != nil {
		return nil, err
	}
	if c.config, err = c.ca.kubeconfig(); err != nil {
		return nil, err
	}
	var settings *tls.Config
	if settings, err = c.ca.tls(); err != nil {
		return nil, err
	}
	c.client = &http.Client{Transport: &http.Transport{TLSClientConfig: settings, ForceAttemptHTTP2: true}}
	if err := c.writeConfigs(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	if err := c.startAll(ctx, filepath.Join(bundle, "crds")); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, c.tails())
	}
	return c, nil
}

// startAll starts the parts in the order in which they need each other. The definitions of
// agent-sandbox's objects come before the controllers: those look for the kinds of objects only now
// and then, and an object of a kind that they don't know yet is cleaned up late.
func (c *Cluster) startAll(ctx context.Context, crds string) error {
	if err := c.startParts("etcd", "kube-apiserver", "containerd"); err != nil {
		return err
	}
	if err := c.until(ctx, "the API server", apiURL+"/readyz"); err != nil {
		return err
	}
	if err := c.installKinds(ctx, crds); err != nil {
		return err
	}
	if err := c.startParts("kube-controller-manager", "kube-scheduler", "kube-proxy"); err != nil {
		return err
	}
	pause := Image{Ref: pauseImage, Entrypoint: []string{"/pause"},
		Files: map[string]string{"/pause": filepath.Join(c.bin, "pause")}}
	if err := c.Import(ctx, pause); err != nil {
		return err
	}
	if err := c.startParts("kubelet", "agent-sandbox-controller"); err != nil {
		return err
	}
	err := testenv.Within(ctx, startPatience, func() error {
		if err := c.alive(); err != nil {
			return err
		}
		var node struct{ Status Status }
		if err := c.Read(ctx, "/api/v1/nodes/node1", &node); err != nil {
			return err
		}
		return node.Status.Is("Ready")
	})
	if err != nil {
		return fmt.Errorf("wait for the node: %w", err)
	}
	if err := c.until(ctx, "agent-sandbox", controllerUp); err != nil {
		return err
	}
	// Pods can't be made before their namespace has this account.
	return testenv.Within(ctx, startPatience, func() error {
		return c.Read(ctx, "/api/v1/namespaces/default/serviceaccounts/default", &struct{}{})
	})
}

// startParts starts the named parts.
func (c *Cluster) startParts(names ...string) error {
	for _, name := range names {
		if err := c.startPart(name, c.arguments(name)...); err != nil {
			return err
		}
	}
	return nil
}

// startPart starts one process. Its output goes to a file.
func (c *Cluster) startPart(name string, args ...string) error {
	if err := os.MkdirAll(filepath.Join(c.dir, "log"), 0o755); err != nil {
		return err
	}
	log, err := os.Create(c.logFile(name))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "PATH="+c.bin+":/usr/sbin:/usr/bin:/sbin:/bin", "KUBECONFIG="+c.config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	p := &part{name: name, cmd: cmd, ended: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts = append(c.parts, p)
	return nil
}

// alive returns an error if a part has ended.
func (c *Cluster) alive() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.parts {
		select {
		case <-p.ended:
			return fmt.Errorf("%s has ended: %w", p.name, errors.Join(p.err, errEnded))
		default:
		}
	}
	return nil
}

var errEnded = errors.New("it should run as long as the cluster")

// until waits until an address answers 200.
func (c *Cluster) until(ctx context.Context, what, url string) error {
	err := testenv.Within(ctx, startPatience, func() error {
		if err := c.alive(); err != nil {
			return err
		}
		resp, err := c.client.Get(url)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}
