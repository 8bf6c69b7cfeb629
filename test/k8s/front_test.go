package k8s_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/snapshot/s3/s3test"
	"github.com/carrel-dev/carrel/internal/state/postgres/postgrestest"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/k8s/cluster"
)

// frontKey and frontIP are the administrator's key and the address of the fronts' Service.
const frontKey, frontIP = "e2b_00112233445566778899aabbccddeeff00112233", "10.96.0.77"

const apps = "/apis/apps/v1/namespaces/default/"

// TestFront deploys the whole chart: fronts, and nodes that join them, with PostgreSQL and an S3
// server outside of pods. E2B's own client makes a sandbox and pauses it. Its node is killed, and
// the client resumes it, with its memory, on another pod: on the other node, or on the one that takes
// the dead one's place, whichever the front chooses. That one has the dead one's name and nothing
// else of it: what ran there is lost.
func TestFront(t *testing.T) {
	testenv.Long(t, "starts a database, a store, and four pods")
	c := start(t)
	sdk := e2bClient(t)
	db := postgrestest.Start(t)
	database := db.Database(t)
	deployFleet(t, c, db.URL(database), s3test.Start(t))
	base := "http://" + frontIP + ":7070"
	svc, err := client.New(base, frontKey)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	members(t, svc, 2)

	began := time.Now()
	made := sdk.run(t, "make")
	t.Logf("made, used and paused by E2B's client: %v", time.Since(began).Round(time.Millisecond))
	// homeOf is where the fleet's records say that a sandbox is, in a state.
	homeOf := func(id carrel.ID, where string) (string, error) {
		node := strings.TrimSpace(db.Exec(t, database, "SELECT convert_from(node, 'UTF8') FROM carrel.homes WHERE sandbox = '"+string(id)+"'::bytea AND "+where))
		if node == "" {
			return "", fmt.Errorf("sandbox %s is not %s", id, where)
		}
		return node, nil
	}
	var victim string
	cluster.Eventually(t, "the pause is in the shared store", func() (err error) {
		victim, err = homeOf(made.ID, "state = 'paused' AND passport IS NOT NULL")
		return err
	})
	var running carrel.ID
	for range 20 {
		running = e2bCreate(t, base, frontKey)
		if node, err := homeOf(running, "state = 'running'"); err != nil {
			t.Fatal(err)
		} else if node == victim {
			break
		}
		running = ""
	}
	if running == "" {
		t.Fatal("20 sandboxes, and none on", victim)
	}

	c.Kill(t, victim)
	died := time.Now()
	var resumed life
	cluster.Eventually(t, "E2B's client resumes it", func() (err error) {
		resumed, err = sdk.try(t, "resume", string(made.ID))
		return err
	})
	if resumed.Count < made.Count {
		t.Errorf("the counter was at %d and is at %d", made.Count, resumed.Count)
	}
	node, err := homeOf(made.ID, "state = 'running'")
	if err != nil {
		t.Error(err)
	}
	t.Logf("%s died, and the sandbox runs on %s after %v", victim, node, time.Since(died).Round(100*time.Millisecond))

	cluster.Eventually(t, "what ran is lost", func() error {
		_, err := homeOf(running, "state = 'lost'")
		return err
	})
	if err := svc.Kill(t.Context(), running); err != nil {
		t.Errorf("end what is lost: %v", err)
	}
	// The new pod joins by itself when the lease of the old one has expired.
	members(t, svc, 2)
	t.Logf("the new pod is a node after %v", time.Since(died).Round(100*time.Millisecond))
	for _, pod := range fronts(t, c) { // at least one of them has not heard of the sandbox yet
		at, err := client.New("http://"+pod+":7070", frontKey)
		if err != nil {
			t.Fatal(err)
		}
		if out := shell(t, at, made.ID, "cat /dev/shm/note"); out != "in memory" {
			t.Errorf("the front at %s: %q", pod, out)
		}
		if _, err := at.Get(t.Context(), running); carrel.KindOf(err) != carrel.NotFound {
			t.Errorf("the front at %s has what was lost and ended: %v", pod, err)
		}
		_ = at.Close()
	}
}

// deployFleet deploys two fronts and two nodes.
func deployFleet(t *testing.T, c *cluster.Cluster, databaseURL string, store *s3test.Server) {
	t.Helper()
	state, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(state.Query().Get("host"), ".s.PGSQL."+state.Query().Get("port"))
	state.Host = forward(t, "unix", socket)
	state.RawQuery = "sslmode=disable"
	c.Apply(t, render(t, "fleet", testValues, fmt.Sprintf(`
front: {enabled: true, replicas: 2, clusterIP: %s, joinURL: "https://%s:7071", statePlain: true,
  resources: {requests: {cpu: 10m, memory: 32Mi}}}
node: {replicas: 2, snapshotStore: "s3://%s/k8s?insecure=true"}
secret:
  joinToken: 0123456789abcdef0123456789abcdef
  stateURL: %q
  apiKey: %s
  s3: {AWS_ACCESS_KEY_ID: %q, AWS_SECRET_ACCESS_KEY: %q, AWS_ENDPOINT_URL_S3: "http://%s", AWS_REGION: us-east-1}
`, frontIP, frontIP, store.Bucket(t), state, frontKey, store.AccessKey, store.SecretKey,
		forward(t, "tcp", strings.TrimPrefix(store.Endpoint, "http://")))))
	t.Cleanup(func() {
		if t.Failed() {
			c.Explain(t)
		}
		c.Delete(t, apps+"statefulsets/fleet-node")
		c.Delete(t, apps+"deployments/fleet-front")
	})
	for _, pod := range []string{"fleet-node-0", "fleet-node-1"} {
		c.Ready(t, cluster.PodPath(pod))
	}
	c.Wait(t, apps+"deployments/fleet-front", "Available")
}

// members waits until a number of nodes take sandboxes.
func members(t *testing.T, svc carrel.Service, n int) {
	t.Helper()
	cluster.Eventually(t, "the nodes are ready", func() error {
		list, err := svc.(*client.Client).Nodes().Nodes(t.Context())
		ready := 0
		for _, node := range list {
			if node.State == carrel.NodeReady && len(node.Tiers) > 0 {
				ready++
			}
		}
		if err == nil && ready != n {
			err = fmt.Errorf("%d of %d: %+v", ready, n, list)
		}
		return err
	})
}

// fronts are the addresses of the fronts' pods.
func fronts(t *testing.T, c *cluster.Cluster) (ips []string) {
	t.Helper()
	var list struct {
		Items []struct{ Status struct{ PodIP string } }
	}
	const query = "?labelSelector=app.kubernetes.io/component%3Dfront"
	if err := c.Read(t.Context(), "/api/v1/namespaces/default/pods"+query, &list); err != nil {
		t.Fatal(err)
	}
	for _, pod := range list.Items {
		ips = append(ips, pod.Status.PodIP)
	}
	if len(ips) != 2 {
		t.Fatalf("%d fronts: %v", len(ips), ips)
	}
	return ips
}

// sdkProgram is a program with E2B's JavaScript client.
type sdkProgram struct{ file string }

// life is what the program says of a sandbox.
type life struct {
	ID    carrel.ID
	Count int
}

func e2bClient(t *testing.T) sdkProgram {
	t.Helper()
	_, err := exec.LookPath("node")
	testenv.Need(t, "k8s", err)
	dir, err := filepath.Abs("../sdk/js")
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(dir, "node_modules", "e2b")) // make puts it there: no test reaches the network here
	testenv.Need(t, "k8s", err)
	return sdkProgram{filepath.Join(dir, "fleet.mjs")}
}

func (p sdkProgram) run(t *testing.T, args ...string) life {
	t.Helper()
	l, err := p.try(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (p sdkProgram) try(t *testing.T, args ...string) (l life, err error) {
	t.Helper()
	base := "http://" + frontIP + ":7070"
	cmd := exec.CommandContext(t.Context(), "node", append([]string{p.file}, args...)...)
	cmd.Env = append(os.Environ(), "E2B_API_URL="+base, "E2B_SANDBOX_URL="+base, "E2B_API_KEY="+frontKey)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return l, fmt.Errorf("%v: %w\n%s", args, err, said.String())
	}
	return l, json.Unmarshal(out, &l)
}

// forward listens on the node's address, and passes connections on to a server that pods can't
// reach.
func forward(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen("tcp", cluster.NodeIP+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer in.Close()
				out, err := net.Dial(network, address)
				if err != nil {
					return
				}
				defer out.Close()
				go func() {
					_, _ = io.Copy(out, in)
					_ = out.Close()
				}()
				_, _ = io.Copy(in, out)
			}()
		}
	}()
	return l.Addr().String()
}
