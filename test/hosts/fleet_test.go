// Package hosts tests a fleet on eight machines that have a network of their own: each daemon and
// each front is in a network namespace, and the test pulls the cables.
package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/snapshot/s3/s3test"
	"github.com/carrel-dev/carrel/internal/state/postgres/postgrestest"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
	"github.com/carrel-dev/carrel/test/lan"
)

func TestMain(m *testing.M) { os.Exit(lan.Main(m)) }

// Ports of the machines.
const (
	clientsPort  = 7070
	fleetPort    = 7071
	databasePort = 5432
	storePort    = 9000
)

const joinToken = "0123456789abcdef0123456789abcdef"

// machines is a fleet, and the network that its machines are on.
type machines struct {
	t        *testing.T
	net      *lan.LAN
	server   *postgrestest.Server
	database string
	standby  *postgrestest.Server // of the database; nil for none
	data     *lan.Host            // has the database and the object store
	spare    *lan.Host            // has the standby
	line     *line                // to the database
	dir      string
	archive  string
	fronts   []*frontProcess
	nodes    []*node
	*client.Client
}

type node struct {
	*daemontest.Daemon
	host *lan.Host
	own  *client.Client // of the daemon itself
}

// frontProcess is "carrel front" on a host.
type frontProcess struct {
	host *lan.Host
	cmd  *exec.Cmd
	log  string // file
	*client.Client
}

// options say what fleet to start.
type options struct {
	fronts, nodes int
	standby       bool // the database has one
	walls         bool // gVisor sandboxes, and an object store for their snapshots
	bin           func(i int) (bin string, env []string)
	liar          bool // node 0 lies about its load
}

// start starts a fleet and waits until all its nodes are ready.
func start(t *testing.T, o options) *machines {
	t.Helper()
	m := &machines{t: t, net: lan.New(t), dir: t.TempDir()}
	var config []string
	if o.standby {
		config = append(config, postgrestest.Replicated)
	}
	m.server = postgrestest.Start(t, config...)
	m.database = m.server.Database(t)
	m.data = m.net.Add("data")
	m.line = forward(t, m.data, databasePort, "unix", m.server.Socket())
	if o.standby {
		m.standby, m.spare = m.server.Standby(t), m.net.Add("spare")
		forward(t, m.spare, databasePort, "unix", m.standby.Socket())
	}
	if err := os.WriteFile(filepath.Join(m.dir, "token"), []byte(joinToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(m.dir, "store")
	if o.walls {
		m.archive = miniArchive(t)
		store = m.objects()
	}
	for range o.fronts {
		m.addFront()
	}
	m.Client = m.fronts[0].Client
	for i := range o.nodes {
		m.nodes = append(m.nodes, m.addNode(i, store, o))
		if o.liar && i == 0 {
			m.lie()
		}
	}
	m.ready(o.nodes)
	return m
}

// objects starts an object store that all machines reach, and returns the address of a bucket.
func (m *machines) objects() string {
	m.t.Helper()
	server := s3test.Start(m.t)
	forward(m.t, m.data, storePort, "tcp", strings.TrimPrefix(server.Endpoint, "http://"))
	m.t.Setenv("AWS_ENDPOINT_URL_S3", "http://"+m.data.At(storePort))
	m.t.Setenv("AWS_ACCESS_KEY_ID", server.AccessKey)
	m.t.Setenv("AWS_SECRET_ACCESS_KEY", server.SecretKey)
	return "s3://" + server.Bucket(m.t) + "/moments?insecure=true"
}

// address is the database's address on the network. With a standby it names both servers.
func (m *machines) address() string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword("carrel", m.server.Password), Host: m.data.At(databasePort),
		Path: "/" + m.database, RawQuery: "sslmode=disable"}
	if m.standby != nil {
		u.Host, u.RawQuery = u.Host+","+m.spare.At(databasePort), u.RawQuery+"&target_session_attrs=read-write"
	}
	return u.String()
}

// addFront starts a front on a machine of its own.
func (m *machines) addFront() *frontProcess {
	m.t.Helper()
	bin, err := filepath.Abs("../../bin/carrel")
	if err != nil {
		m.t.Fatal(err)
	}
	f := &frontProcess{host: m.net.Add(fmt.Sprintf("front-%d", len(m.fronts)))}
	f.log = filepath.Join(m.dir, fmt.Sprintf("front-%d.log", len(m.fronts)))
	key := filepath.Join(m.dir, "key")
	f.cmd = exec.Command(bin, "front", "--listen", f.host.At(clientsPort), "--nodes-listen", f.host.At(fleetPort), "--node-lease", fleet.ShortestLease.String(),
		"--join-token-file", filepath.Join(m.dir, "token"), "--api-key-file", key, "--state-plain")
	f.cmd.Env = append(os.Environ(), "CARREL_STATE="+m.address())
	log, err := os.Create(f.log)
	if err != nil {
		m.t.Fatal(err)
	}
	defer log.Close()
	f.cmd.Stdout, f.cmd.Stderr = log, log
	if err := f.host.Start(f.cmd); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { f.end(m.t) })
	testenv.EventuallyNil(m.t, "the front answers", func() error {
		raw, err := os.ReadFile(key)
		if err != nil {
			text, _ := os.ReadFile(f.log)
			return fmt.Errorf("%w: %s", err, text)
		}
		svc, err := client.New("http://"+f.host.At(clientsPort), strings.TrimSpace(string(raw)))
		if err != nil {
			return err
		}
		f.Client = svc.(*client.Client)
		_, err = f.Nodes().Nodes(m.t.Context())
		return err
	})
	m.fronts = append(m.fronts, f)
	return f
}

// end ends the front and tells its log if the test failed.
func (f *frontProcess) end(t *testing.T) {
	_ = f.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	_ = f.cmd.Wait()
	if text, _ := os.ReadFile(f.log); t.Failed() {
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		t.Logf("the log of the front at %s:\n%s", f.host.Addr, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}

// addNode starts a daemon on a machine of its own. It joins through all fronts.
func (m *machines) addNode(i int, store string, o options) *node {
	m.t.Helper()
	h := m.net.Add(name(i))
	place := daemontest.Place{Listen: h.At(clientsPort), Start: h.Start}
	if o.bin != nil {
		var env []string
		place.Bin, env = o.bin(i)
		place.Start = func(cmd *exec.Cmd) error {
			cmd.Env = append(cmd.Env, env...)
			return h.Start(cmd)
		}
	}
	args := []string{"--node-name", name(i), "--join-token-file", filepath.Join(m.dir, "token"),
		"--fleet-listen", h.At(fleetPort), "--snapshot-store", store}
	if o.liar && i == 0 {
		args = append(args, "--fleet-url", "https://"+h.At(liarPort))
	}
	for _, f := range m.fronts {
		args = append(args, "--join", "https://"+f.host.At(fleetPort))
	}
	d := daemontest.StartAt(m.t, place, m.archive, args...)
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		m.t.Fatal(err)
	}
	return &node{d, h, svc.(*client.Client)}
}

func name(i int) string { return fmt.Sprintf("node-%d", i) }

// ready waits until n nodes can be used.
func (m *machines) ready(n int) {
	m.t.Helper()
	testenv.EventuallyNil(m.t, fmt.Sprintf("%d nodes are ready", n), func() error {
		list, err := m.Nodes().Nodes(m.t.Context())
		good := 0
		for _, node := range list {
			if node.State == carrel.NodeReady && len(node.Tiers) > 0 {
				good++
			}
		}
		if err == nil && good != n {
			err = fmt.Errorf("%d: %+v", good, list)
		}
		return err
	})
}

// stateOf is what the fleet says of a node.
func (m *machines) stateOf(i int) carrel.Node {
	m.t.Helper()
	list, err := m.Nodes().Nodes(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	for _, n := range list {
		if n.Name == name(i) {
			return n
		}
	}
	m.t.Fatalf("no node %d", i)
	return carrel.Node{}
}

// homes are the numbers of the nodes whose daemons have a sandbox.
func (m *machines) homes(id carrel.ID) (at []int) {
	m.t.Helper()
	for i := range m.nodes {
		_, err := m.nodes[i].own.Get(m.t.Context(), id)
		switch {
		case err == nil:
			at = append(at, i)
		case carrel.KindOf(err) != carrel.NotFound:
			m.t.Fatalf("node %d: %v", i, err)
		}
	}
	return at
}

// home is the node that has a sandbox.
func (m *machines) home(id carrel.ID) int {
	m.t.Helper()
	at := m.homes(id)
	if len(at) != 1 {
		m.t.Fatalf("sandbox %s is on the nodes %v, want one", id, at)
	}
	return at[0]
}

// on makes sandboxes until one is on this node, and ends the others.
func (m *machines) on(i int, o carrel.CreateOptions) carrel.Sandbox {
	m.t.Helper()
	for {
		sb := m.create(o)
		if m.home(sb.ID) == i {
			return sb
		}
		if err := m.Kill(m.t.Context(), sb.ID); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *machines) create(o carrel.CreateOptions) carrel.Sandbox {
	m.t.Helper()
	if o.Tier == "" {
		o.Tier = carrel.Sim
	}
	o.Timeout = time.Hour
	sb, err := m.Create(m.t.Context(), o)
	if err != nil {
		m.t.Fatal(err)
	}
	return sb
}

// many makes n sandboxes, atOnce at a time.
func (m *machines) many(n int, o carrel.CreateOptions) []carrel.Sandbox {
	m.t.Helper()
	if o.Tier == "" {
		o.Tier = carrel.Sim
	}
	o.Timeout = time.Hour
	boxes := make([]carrel.Sandbox, n)
	each(n, func(i int) {
		var err error
		if boxes[i], err = m.Create(m.t.Context(), o); err != nil {
			m.t.Error(err)
		}
	})
	if m.t.Failed() {
		m.t.FailNow()
	}
	return boxes
}

// all calls fn for each sandbox, for several at once.
func (m *machines) all(boxes []carrel.Sandbox, fn func(carrel.Sandbox)) {
	m.t.Helper()
	each(len(boxes), func(i int) { fn(boxes[i]) })
	if m.t.Failed() {
		m.t.FailNow()
	}
}

// atOnce is how many calls a test makes at once.
const atOnce = 16

func each(n int, fn func(int)) {
	var wg sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for i := range n {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			fn(i)
		})
	}
	wg.Wait()
}

// sh runs a command through a front's gateway.
func (m *machines) sh(c *client.Client, id carrel.ID, command string) string {
	m.t.Helper()
	out, err := try(m.t.Context(), c, id, command)
	if err != nil {
		m.t.Fatalf("%s: %v", command, err)
	}
	return out
}

// tryTime bounds one command.
const tryTime = 30 * time.Second

func try(ctx context.Context, c *client.Client, id carrel.ID, command string) (string, error) {
	return daemontest.Sh(ctx, c, id, command, tryTime)
}

// published waits until a paused sandbox can be taken over.
func (m *machines) published(ids ...carrel.ID) {
	m.t.Helper()
	testenv.EventuallyNil(m.t, "the paused sandboxes are published", func() error {
		out := m.server.Exec(m.t, m.database, "SELECT convert_from(sandbox, 'UTF8') FROM carrel.homes WHERE state = 'paused' AND passport IS NOT NULL")
		for _, id := range ids {
			if !strings.Contains(out, string(id)) {
				return fmt.Errorf("%s is not", id)
			}
		}
		return nil
	})
}

// line carries connections to another place. It can be slow.
type line struct {
	listener net.Listener
	network  string
	addr     string
	delay    atomic.Int64
	ctx      context.Context
	wg       sync.WaitGroup
}

// forward carries what comes to a host's port to a place on the test's own.
func forward(t *testing.T, h *lan.Host, port int, network, addr string) *line {
	t.Helper()
	l, err := h.Listen(port)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &line{listener: l, network: network, addr: addr, ctx: ctx}
	f.wg.Go(f.accept)
	t.Cleanup(func() { cancel(); _ = l.Close(); f.wg.Wait() })
	return f
}

// slow has each message of a client wait so long.
func (f *line) slow(d time.Duration) { f.delay.Store(int64(d)) }

func (f *line) accept() {
	for {
		in, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.wg.Go(func() {
			defer in.Close()
			out, err := (&net.Dialer{}).DialContext(f.ctx, f.network, f.addr)
			if err != nil {
				return
			}
			defer out.Close()
			stop := context.AfterFunc(f.ctx, func() { _, _ = in.Close(), out.Close() })
			defer stop()
			var both sync.WaitGroup
			both.Go(func() { f.copy(out, in) })
			both.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
			both.Wait()
		})
	}
}

// hold waits as long as a message is late.
func (f *line) hold() {
	if d := time.Duration(f.delay.Load()); d > 0 {
		select {
		case <-f.ctx.Done():
		case <-time.After(d):
		}
	}
}

func (f *line) copy(out io.WriteCloser, in io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			f.hold()
			if _, werr := out.Write(buf[:n]); werr != nil {
				err = errors.Join(err, werr)
			}
		}
		if err != nil {
			_ = out.Close()
			return
		}
	}
}
