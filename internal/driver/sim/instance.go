package sim

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tools"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// instance is one simulated sandbox.
type instance struct {
	id       carrel.ID
	handle   driver.Handle
	limits   carrel.Limits
	fs       *vfs.FS
	template *vfs.FS // the initial state of fs
	machine  *interp.Machine
	agent    *agent.Agent
	server   *http.Server
	link     *listener
	served   chan struct{} // closed when the server has ended
	host     hostDoor
	out      *way // nil where there is none
	cells    cells
	log      *slog.Logger
	programs *programs

	snapshotting sync.Mutex // held while a snapshot is written

	destroy sync.Once
	ending  chan struct{} // closed when its end begins
	done    chan struct{} // closed when all has ended
	exit    driver.Exit   // valid once done is closed
}

var _ driver.Instance = (*instance)(nil)

// newInstance builds and starts a sandbox on its files.
func newInstance(d *Driver, spec driver.Spec, h driver.Handle, files, template *vfs.FS) *instance {
	i := &instance{id: spec.ID, handle: h, limits: spec.Limits, link: newListener(), fs: files, template: template,
		served: make(chan struct{}), ending: make(chan struct{}), done: make(chan struct{})}
	i.out, i.programs = newWay(i, d.opts), d.programs
	i.cells.i, i.log = i, d.opts.Logger
	i.programs.attach(i.id, i.fs)
	i.machine = interp.New(interp.Config{FS: i.fs, Hostname: string(spec.ID), Now: d.opts.Now, CPUs: int(max(spec.Limits.CPUs, 1)), Token: i.token, Commands: tools.All(), Lookup: i.lookup, HTTP: i.out.http(),
		Limits: interp.Limits{Procs: spec.Limits.Pids, Memory: int64(spec.Limits.MemoryMB) << 20, Output: d.opts.MaxOutput, Steps: d.opts.MaxSteps}})
	i.host.init(d.opts.Local)
	i.agent = agent.New(agent.Config{
		System: &system{i: i}, Logger: d.opts.Logger.With("sandbox", spec.ID),
		// Every connection comes through Dial, because no program inside can make one.
		Trusted:    func(remote net.Addr) bool { return remote.String() == string(hostAddr) },
		Checkpoint: guest.Host{Dial: i.dialLocal}.Checkpoint,
		Denials:    true,
		Kept:       agent.KeptLimits{Process: 256 << 10, Total: 1 << 20, Ended: 32}, // the worker's memory, not the sandbox's
	})
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	i.server = &http.Server{Handler: i.agent.Handler(), Protocols: &protocols, ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(d.opts.Logger.Handler(), slog.LevelDebug)}
	go func() {
		defer close(i.served)
		_ = i.server.Serve(i.link) // ends with Destroy
	}()
	return i
}

// Handle implements driver.Instance.
func (i *instance) Handle() driver.Handle { return i.handle }

// Dial implements driver.Instance. Only the guest and the code interpreter listen in a simulated
// sandbox.
func (i *instance) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	const op = "dial sandbox"
	if err := ctx.Err(); err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.TimedOut, ID: i.id, Err: err}
	}
	link, err := i.door(port)
	if err != nil {
		return nil, err
	}
	c, err := link.dial(ctx)
	if err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.KindOf(err), ID: i.id, Err: errors.Unwrap(err)}
	}
	return c, nil
}

// stepTime is the assumed cost of one step of the shell, because Go does not measure processor time
// per goroutine.
const stepTime = 150 * time.Nanosecond

// Stats implements driver.Instance. CPU is an estimate from the shell's steps. Memory includes
// files, which are in memory here.
func (i *instance) Stats(context.Context) (driver.Stats, error) {
	select {
	case <-i.done:
		return driver.Stats{}, &carrel.Error{Op: "measure sandbox", Kind: carrel.NotFound, ID: i.id, Err: errors.New("it has ended")}
	default:
	}
	u := i.machine.Usage()
	disk, quota := i.fs.Usage()
	return driver.Stats{CPU: time.Duration(u.Steps) * stepTime, Memory: u.Memory, MemoryLimit: int64(i.limits.MemoryMB) << 20,
		Disk: disk, DiskLimit: quota, Pids: u.Procs}, nil
}

// Wait implements driver.Instance. A simulated sandbox ends only by Destroy.
func (i *instance) Wait(ctx context.Context) (driver.Exit, error) {
	select {
	case <-i.done:
		return i.exit, nil
	case <-ctx.Done():
		return driver.Exit{}, &carrel.Error{Op: "wait for sandbox", Kind: carrel.TimedOut, ID: i.id, Err: ctx.Err()}
	}
}

// Destroy implements driver.Instance.
func (i *instance) Destroy(ctx context.Context) error {
	i.destroy.Do(func() {
		close(i.ending)
		go i.end()
	})
	select {
	case <-i.done:
		return nil
	case <-ctx.Done():
		return &carrel.Error{Op: "destroy sandbox", Kind: carrel.TimedOut, ID: i.id, Err: ctx.Err()}
	}
}

// end stops everything, outermost first, and waits until all of it has ended.
func (i *instance) end() {
	i.cells.close()
	_ = i.link.Close()
	_ = i.server.Close()
	<-i.served
	i.machine.Close() // kills the processes, which ends the agent's readers
	i.host.cancel()   // ends the waits for the host
	i.agent.Close()
	i.host.close()
	i.out.close()
	i.programs.detach(i.id, i.fs)
	i.exit = driver.Exit{Reason: carrel.EndKilled, Message: "destroyed on request", Time: time.Now()}
	close(i.done)
}
