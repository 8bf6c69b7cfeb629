package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/tap"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/wire"
)

// outside is the number of addresses that lead to the peer. Each sandbox has its own, so that this
// host does not run out of ports to connect from.
const outside = 4

// outsideAddress returns the peer's address for sandbox i. It leads to peerAddress.
func outsideAddress(i int) string { return fmt.Sprintf("203.0.113.%d", 10+i) }
func peerAddress(i int) string    { return fmt.Sprintf("127.0.0.%d", 10+i) }

// wireTable is the whole outside world during the measurement of the wire.
func wireTable() *wire.Table {
	t := &wire.Table{Dial: map[string]string{}}
	for i := range outside {
		t.Dial[outsideAddress(i)] = peerAddress(i)
	}
	return t
}

// wireBench is the set-up of one run.
type wireBench struct {
	o       Options
	program string // of traffic
	peer    *wirePeer
	wire    *wire.Wire // for the namespaces
}

// place is where the traffic programs run: next to the peer, in a namespace, in a sandbox. run
// starts one for the peer's address of place i and returns its output.
type place struct {
	name string
	run  func(ctx context.Context, i int, mode string, port int, count int64) ([]byte, error)
}

// benchWire measures the cost of the wire. The same traffic program talks to the same server from
// three places: directly over loopback, from a namespace behind a TAP, and from a gVisor sandbox.
func benchWire(ctx context.Context, _ *daemon, o Options) ([]row, error) {
	dir, err := os.MkdirTemp("", "carrel-bench-wire-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	b := &wireBench{o: o, program: filepath.Join(dir, "traffic")}
	raiseFiles()
	if b.program, err = build(ctx, b.program, "traffic"); err != nil {
		return nil, err
	}
	if b.peer, err = startWirePeer(ctx, b.program); err != nil {
		return nil, err
	}
	defer b.peer.stop()
	internet, err := policy.Compile(carrel.Network{Internet: true})
	if err != nil {
		return nil, err
	}
	b.wire = wire.New(wire.Options{Dialer: wireTable(), Egress: func(carrel.ID) *policy.Policy { return internet }})
	defer b.wire.Close()

	table := filepath.Join(dir, "table.json")
	raw, err := json.Marshal(wireTable())
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(table, raw, 0o600); err != nil {
		return nil, err
	}
	d, err := startDaemon(ctx, o, "--wire-table", table)
	if err != nil {
		return nil, err
	}
	defer d.stop()
	opts := base(carrel.GVisor)
	opts.Network = carrel.Network{Internet: true}
	boxes, err := b.sandboxes(ctx, d, outside, opts)
	if err != nil {
		return nil, err
	}
	direct := place{"loopback", b.direct}
	own := place{"gVisor's own loopback", func(ctx context.Context, _ int, _ string, _ int, count int64) ([]byte, error) {
		return boxes.ownLoopback(ctx, int(count))
	}}
	ns, gvisor := place{"namespace", b.namespace}, place{"gVisor", boxes.run}
	var rows []row
	for _, measure := range []func() ([]row, error){
		func() ([]row, error) { return b.throughput(ctx, direct, ns, gvisor) },
		func() ([]row, error) { return b.latency(ctx, own, direct, ns, gvisor) },
		func() ([]row, error) { return b.many(ctx, ns, gvisor) },
		func() ([]row, error) { return b.newWire(ctx) },
	} {
		got, err := measure()
		if err != nil {
			return nil, err
		}
		rows = append(rows, got...)
	}
	return rows, nil
}

// raiseFiles raises the limit on open files as the daemon does, and further if this user may. Each
// connection through the wire is a file here.
func raiseFiles() {
	most := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &most) != nil && unix.Getrlimit(unix.RLIMIT_NOFILE, &most) == nil {
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most.Max, Max: most.Max})
	}
}

// openFiles returns how many files this process may open.
func openFiles() int {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 1024
	}
	return int(l.Cur)
}

// wirePeer is the server, in its own process.
type wirePeer struct {
	cmd                      *exec.Cmd
	in                       io.WriteCloser
	out                      *bufio.Reader
	Sink, Source, Echo, Gate int
}

func startWirePeer(ctx context.Context, program string) (*wirePeer, error) {
	p := &wirePeer{cmd: exec.CommandContext(ctx, program, "serve")}
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := p.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, p)
	}
	if err != nil {
		p.stop()
	}
	return p, err
}

func (p *wirePeer) stop() {
	_ = p.in.Close()
	_ = p.cmd.Wait()
}

// expect tells the gate how many connections to wait for.
func (p *wirePeer) expect(n int) error {
	if _, err := fmt.Fprintln(p.in, n); err != nil {
		return err
	}
	_, err := p.out.ReadBytes('\n')
	return err
}

// direct runs a program directly on this machine.
func (b *wireBench) direct(ctx context.Context, i int, mode string, port int, count int64) ([]byte, error) {
	cmd := exec.CommandContext(ctx, b.program, mode, fmt.Sprintf("%s:%d", peerAddress(i), port), fmt.Sprint(count))
	cmd.Stderr = os.Stderr
	return cmd.Output()
}

// namespace runs it behind a new TAP in a new namespace, with a new wire.
func (b *wireBench) namespace(ctx context.Context, i int, mode string, port int, count int64) ([]byte, error) {
	cmd := exec.CommandContext(ctx, b.program, mode, fmt.Sprintf("%s:%d", outsideAddress(i), port), fmt.Sprint(count))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	file, err := tap.Spawn(cmd, tap.Config{})
	if err != nil {
		return nil, err
	}
	link, err := b.wire.Attach(ctx, driver.LinkSpec{ID: carrel.NewID(), MTU: tap.DefaultMTU}, file)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	defer link.Close()
	err = cmd.Wait()
	return out.Bytes(), err
}

// wireBoxes are sandboxes with the traffic program in them.
type wireBoxes struct {
	ids       []carrel.ID
	computers []carrel.Computer
}

// sandboxes makes n of them.
func (b *wireBench) sandboxes(ctx context.Context, d *daemon, n int, opts carrel.CreateOptions) (*wireBoxes, error) {
	boxes := &wireBoxes{}
	for range n {
		sb, err := d.svc.Create(ctx, opts)
		if err != nil {
			return nil, err
		}
		boxes.ids = append(boxes.ids, sb.ID)
		c, err := d.svc.Computer(ctx, sb.ID)
		if err != nil {
			return nil, err
		}
		f, err := os.Open(b.program)
		if err != nil {
			return nil, err
		}
		_, err = c.Files("").Write(ctx, "traffic", f)
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		if err := bash(ctx, c, "chmod +x traffic"); err != nil {
			return nil, err
		}
		boxes.computers = append(boxes.computers, c)
	}
	return boxes, nil
}

func (w *wireBoxes) run(ctx context.Context, i int, mode string, port int, count int64) ([]byte, error) {
	res, err := w.computers[i].Run(ctx, carrel.Command{Args: []string{"./traffic", mode, fmt.Sprintf("%s:%d", outsideAddress(i), port), fmt.Sprint(count)}})
	if err != nil {
		return nil, err
	}
	if res.ExitCode != 0 || len(res.Stderr) > 0 {
		return nil, fmt.Errorf("traffic %s in a sandbox: exit status %d: %s", mode, res.ExitCode, res.Stderr)
	}
	return res.Stdout, nil
}

// ownLoopback runs the echo inside one sandbox, with the server. It measures the sandbox's kernel
// without a wire.
func (w *wireBoxes) ownLoopback(ctx context.Context, count int) ([]byte, error) {
	script := fmt.Sprintf(`exec 3< <(sleep 60 | ./traffic serve); read -r ports <&3
port=$(sed 's/.*"Echo":\([0-9]*\).*/\1/' <<<"$ports"); ./traffic echo 127.0.0.1:$port %d; pkill sleep`, count)
	res, err := w.computers[0].Run(ctx, carrel.Command{Args: []string{"/bin/bash", "-c", script}})
	if err != nil {
		return nil, err
	}
	return res.Stdout, nil
}

// gigabits runs a transfer and returns its speed.
func gigabits(ctx context.Context, p place, mode string, port int, size int64) (float64, error) {
	out, err := p.run(ctx, 0, mode, port, size)
	if err != nil {
		return 0, fmt.Errorf("%s, %s: %w", p.name, mode, err)
	}
	var seconds float64
	err = json.Unmarshal(out, &seconds)
	return float64(size) * 8 / 1e9 / seconds, err
}

// throughput moves bytes out of and into each place, in turns.
func (b *wireBench) throughput(ctx context.Context, places ...place) ([]row, error) {
	targets := map[string][2]float64{"namespace": {8, 5}, "gVisor": {2.5, 3}}
	size := int64(1 << 30)
	if b.o.Quick {
		size = 256 << 20
	}
	var rows []row
	for i, dir := range []struct {
		name, mode string
		port       int
	}{{"out of", "flood", b.peer.Sink}, {"into", "drain", b.peer.Source}} {
		got := make([][]float64, len(places))
		for range max(3, b.o.samples(5)) {
			for j, p := range places {
				speed, err := gigabits(ctx, p, dir.mode, dir.port, size)
				if err != nil {
					return nil, err
				}
				got[j] = append(got[j], speed)
			}
		}
		for j, p := range places {
			name := fmt.Sprintf("one stream %s a %s", dir.name, p.name)
			if p.name == "loopback" {
				rows = append(rows, summarise("one stream over loopback, the same programs", "Gbit/s", got[j]))
				continue
			}
			r := more(name, "Gbit/s", got[j], targets[p.name][i])
			rows = append(rows, r, summarise("  ÷ loopback", "×", []float64{r.Median / summarise("", "", got[0]).Median}))
		}
	}
	return rows, nil
}

// latency measures the round trip of one byte.
func (b *wireBench) latency(ctx context.Context, own place, places ...place) ([]row, error) {
	places = append(places, own)
	got := make([][]float64, len(places))
	for range 3 {
		for j, p := range places {
			out, err := p.run(ctx, 0, "echo", b.peer.Echo, int64(b.o.samples(2000)))
			if err != nil {
				return nil, fmt.Errorf("%s, echo: %w", p.name, err)
			}
			var times []float64
			if err := json.Unmarshal(out, &times); err != nil {
				return nil, err
			}
			got[j] = append(got[j], times...)
		}
	}
	micro := func(ms []float64) []float64 {
		out := make([]float64, len(ms))
		for i, t := range ms {
			out[i] = t * 1000
		}
		return out
	}
	direct := summarise("TCP echo over loopback", "µs", micro(got[0]))
	rows := []row{direct}
	for j, p := range places[1:] {
		if p.name == own.name {
			rows = append(rows, summarise("TCP echo over "+p.name, "µs", micro(got[j+1])))
			continue
		}
		r := summarise("TCP echo from a "+p.name, "µs", micro(got[j+1]))
		rows = append(rows, r, fewer("  more than over loopback, median", "µs", []float64{r.Median - direct.Median}, 300))
	}
	return rows, nil
}

// many opens thousands of connections. All are open before the first is answered.
func (b *wireBench) many(ctx context.Context, places ...place) ([]row, error) {
	var rows []row
	for _, p := range places {
		for _, boxes := range []int{1, outside} {
			// Each takes one file in the daemon and one in the peer, and both have some others.
			each := min(5000, (openFiles()-400)/boxes)
			if b.o.Quick {
				each = 500
			}
			if err := b.peer.expect(each * boxes); err != nil {
				return nil, err
			}
			start := time.Now()
			answered, err := b.manyIn(ctx, p, boxes, each)
			if err != nil {
				return nil, err
			}
			name := fmt.Sprintf("connections open at once and answered, %d × %s", boxes, p.name)
			rows = append(rows, more(name, "", []float64{float64(answered)}, float64(each*boxes)),
				summarise("  in", "ms", []float64{ms(time.Since(start))}))
		}
	}
	return rows, nil
}

func (b *wireBench) manyIn(ctx context.Context, p place, boxes, each int) (int, error) {
	var wg sync.WaitGroup
	answered, errs := make([]int, boxes), make([]error, boxes)
	for i := range boxes {
		wg.Go(func() {
			out, err := p.run(ctx, i, "many", b.peer.Gate, int64(each))
			if err == nil {
				err = json.Unmarshal(out, &answered[i])
			}
			errs[i] = err
		})
	}
	wg.Wait()
	sum := 0
	for i := range boxes {
		if errs[i] != nil {
			return 0, fmt.Errorf("%s, many: %w", p.name, errs[i])
		}
		sum += answered[i]
	}
	return sum, nil
}

// newWire measures from Attach to the first byte of a connection to a program that listens in a
// namespace.
func (b *wireBench) newWire(ctx context.Context) ([]row, error) {
	const port = 8080
	cmd := exec.CommandContext(ctx, b.program, "listen", fmt.Sprint(port))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	file, err := tap.Spawn(cmd, tap.Config{})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	defer cmd.Wait()
	defer in.Close()
	if _, err := bufio.NewReader(out).ReadBytes('\n'); err != nil {
		return nil, err
	}
	var times []float64
	for i := range b.o.samples(100) + 3 {
		fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		start := time.Now()
		link, err := b.wire.Attach(ctx, driver.LinkSpec{ID: carrel.NewID(), MTU: tap.DefaultMTU}, os.NewFile(uintptr(fd), "tap"))
		if err != nil {
			return nil, err
		}
		c, err := link.Dial(ctx, port)
		if err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			return nil, err
		}
		if i >= 3 {
			times = append(times, ms(time.Since(start)))
		}
		_ = c.Close()
		if err := link.Close(); err != nil {
			return nil, err
		}
	}
	return []row{fewer("a new wire: attach → a listening program's first byte", "ms", times, 3)}, nil
}
