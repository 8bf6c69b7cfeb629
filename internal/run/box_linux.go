package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/box"
	"github.com/carrel-dev/carrel/internal/box/guard"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/linux/landlock"
	"github.com/carrel-dev/carrel/internal/linux/overlay"
	"github.com/carrel-dev/carrel/internal/linux/seccomp"
	"github.com/carrel-dev/carrel/internal/pki/trustenv"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/refusal"
	"github.com/carrel-dev/carrel/internal/settings"
)

const system = "linux"

// box runs the command between walls of Linux's own mechanisms.
func (j *Job) box(ctx context.Context) (code int, sig syscall.Signal, err error) {
	var undo cleanup.Stack
	defer undo.Run()
	defer func() { // after the changes are carried out
		if left := j.settle(); left != nil {
			err = errors.Join(err, left)
		}
	}()
	nested := j.inside()
	p, err := newPlan(j.Box, j.Args, j.Env, func(lower string) (layer, error) { return j.upper(&undo, lower) })
	if err != nil {
		return 0, 0, err
	}
	if nested { // a process can have only one listener, and the outer box's would see everything
		f := &p.spec.Seccomp
		f.WatchConnect, f.WatchBind, f.WatchWrites, f.WatchRemoves = false, false, false, false
	}
	if j.Box.Light {
		if err := j.lightTmp(p, &undo); err != nil {
			return 0, 0, err
		}
	}
	if err := j.publish(p); err != nil {
		return 0, 0, err
	}
	way, err := j.wire(p)
	if err != nil {
		return 0, 0, err
	}
	if way != nil {
		undo.Add(func() { _ = way.Close() })
	}
	opts := box.Options{Cgroup: "carrel/run", Events: j.events(p)}
	if l := p.spec.Limits; l.CPUs == 0 && l.Memory >= 2<<30 && l.Pids >= 1000 {
		opts.CgroupAfter = lateGroup // nothing gets there so soon
	}
	if nested {
		opts.Cgroup = "" // the outer box's group is read-only in here
	}
	if opts.Stage, err = j.walls.program(j.Deps); err != nil {
		return 0, 0, err
	}
	opts.Ahead = j.walls.stage
	if !nested {
		if err := j.guard(p, &opts); err != nil {
			return 0, 0, err
		}
	}
	tty := j.streams(p, &opts)
	// Catch signals from here on, so that one that comes while the box is built is not lost.
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, forwarded...)
	if !j.Deps.Last { // for each signal it waits until two threads have woken each other
		defer signal.Stop(signals)
	}
	stopped := make(chan struct{}, 1)
	opts.Events.Stopped = func() {
		select {
		case stopped <- struct{}{}:
		default:
		}
	}
	bx, err := box.Start(ctx, p.spec, opts)
	if err != nil {
		return 0, 0, err
	}
	defer bx.Kill()
	j.notes = append(j.notes, bx.Missing()...)
	for i, at := range bx.Published() {
		j.say("port %d of the box is %s", p.spec.Publish[i].Inside, at)
	}
	if way != nil {
		if err := way.Attach(ctx, bx.Link()); err != nil && !overBy(bx, attachTime) {
			return 0, 0, err
		}
	}
	lost := loseWay(way, bx)
	exit, err := j.watch(bx, tty, signals, stopped)
	if err == nil {
		err = lost()
	}
	if err != nil {
		return 0, 0, err
	}
	if code, sig, err = j.ended(exit); err != nil {
		return code, sig, err
	}
	return code, sig, j.changes(ctx)
}

// attachTime is how long to wait for a box's end after its link can't be attached. A short command
// may have ended during the attaching, and its namespace with it.
const attachTime = time.Second

// overBy waits for a box's end, not longer than most, and reports whether it came.
func overBy(bx *box.Box, most time.Duration) bool {
	select {
	case <-bx.Stopping():
		return true
	case <-time.After(most):
		return false
	}
}

// loseWay ends a box that has lost its network because the process that carries it broke down, and
// returns what says so afterwards. That of a box that was over by then has nothing to carry any
// more.
func loseWay(way Wire, bx *box.Box) (lost func() error) {
	c, ok := way.(*carrier)
	if !ok {
		return func() error { return nil }
	}
	result := make(chan error, 1)
	go func() {
		select {
		case <-bx.Stopping():
			result <- nil
		case err := <-c.Broken():
			if overBy(bx, attachTime) {
				err = nil
			} else {
				_ = bx.Kill()
			}
			result <- err
		}
	}()
	return func() error {
		if err := <-result; err != nil {
			return &carrel.Error{Op: "run", Kind: carrel.Internal, Err: fmt.Errorf("the box lost its network and was ended: %w", err), Hint: "run it again; what it had done until then is done"}
		}
		return nil
	}
}

// lightTmp gives a light box its own directory for temporary files, instead of a private /tmp.
func (j *Job) lightTmp(p *plan, undo *cleanup.Stack) error {
	dir, err := os.MkdirTemp("", "carrel-run-")
	if err != nil {
		return err
	}
	undo.Add(func() { _ = overlay.Remove(dir) })
	p.spec.Env = setEnv(p.spec.Env, "TMPDIR", dir)
	p.spec.Landlock.Rules = append(p.spec.Landlock.Rules, landlock.Rule{Path: dir, Access: landlock.ReadWrite})
	p.rules.Paths = append(p.rules.Paths, guard.Path{Path: dir, Writable: true, Rule: "temporary files"})
	p.rules.Own = append(p.rules.Own, dir)
	return nil
}

// marker is a variable in the command's environment. It tells a carrel run inside that it is in a
// box.
const marker = "CARREL_BOX"

// inside reports whether this process already runs in a box of ours. Namespaces are closed there,
// so the inner box is a light one inside the outer walls.
func (j *Job) inside() bool {
	if _, ok := j.secret(marker); !ok || !box.Inside() {
		return false
	}
	if !j.Box.Light {
		j.Box.Light = true
		j.Note("this box lies in another one: it adds Landlock and a filter to that one's walls")
	}
	return true
}

// lateGroup is the age at which a box with wide limits gets a control group. Joining one takes
// longer than most commands.
const lateGroup = 50 * time.Millisecond

// guard makes the guard, which decides about Unix sockets and protected names.
func (j *Job) guard(p *plan, opts *box.Options) error {
	p.rules.Quarantine = j.quarantine()
	var started atomic.Pointer[box.Box]
	g, err := guard.New(p.rules, j.Log, func() *os.File {
		if b := started.Load(); b != nil {
			return b.Root()
		}
		return nil
	})
	if err != nil {
		return err
	}
	j.guarded = g.Close
	opts.Watch = func(b *box.Box, c seccomp.Call) seccomp.Answer {
		started.Store(b)
		return g.Answer(c)
	}
	return nil
}

// stateDir returns the directory of this user's state.
func stateDir(home string) string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "carrel")
	}
	return filepath.Join(home, ".local", "state", "carrel")
}

// resolved resolves the links in the existing part of a path. It is called before a command can
// have made any.
func resolved(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err == nil || path == "/" {
		return cmp.Or(real, path)
	}
	return filepath.Join(resolved(filepath.Dir(path)), filepath.Base(path))
}

// events returns functions that turn the walls' reports into refusals.
func (j *Job) events(p *plan) box.Events {
	return box.Events{
		Name: func(name string) {
			j.Log.Add(refusal.Refusal{Kind: refusal.Name, What: name, Operation: "dns", Rule: "the network is closed",
				Reason: "names are not looked up while nothing may be reached", Allow: "--allow " + name, Certain: true})
		},
		Touched: func(hidden int, path, op string, pid int) {
			if hidden < 0 || hidden >= len(p.hidden) {
				return
			}
			r := p.hidden[hidden]
			j.Log.Add(refusal.Refusal{Kind: refusal.Read, What: path, Operation: op, Rule: r.Rule, Reason: "it is hidden from the command",
				Allow: r.Allow, PID: pid, Certain: true, Minor: op == "look up" && j.searches(path)})
		},
		Limit: j.Limit,
	}
}

// searches reports whether a program only searched PATH at a hidden path.
func (j *Job) searches(path string) bool {
	dirs, _ := j.secret("PATH")
	for dir := range strings.SplitSeq(dirs, ":") {
		if dir != "" && (within(path, dir) || within(dir, path)) {
			return true
		}
	}
	return false
}

// Limit records that a limit was reached.
func (j *Job) Limit(name, value string) {
	j.Log.Add(refusal.Refusal{Kind: refusal.Limit, What: name, Rule: "limit of " + value,
		Reason: "the command went over it", Allow: "--" + limitFlag(name), Certain: true})
}

// limitFlag returns the flag that raises a limit.
func limitFlag(name string) string {
	switch name {
	case "cpus":
		return "cpu"
	default:
		return name
	}
}

// ended turns the box's end into a status.
func (j *Job) ended(e box.Exit) (int, syscall.Signal, error) {
	if e.Limit == "timeout" {
		return ExitTimeout, 0, nil
	}
	return e.Code, e.Signal, nil
}

// wire makes the network of a box that has one, and sets the variables that the box needs for it.
func (j *Job) wire(p *plan) (Wire, error) {
	if p.spec.Network != box.Wired {
		return nil, nil
	}
	w, err := j.walls.wire(j.Deps, WireOptions{Policy: j.Box.Policy, Table: j.opts.table, Lookup: j.secret, Decided: j.Decided})
	if err != nil {
		return nil, err
	}
	for name, value := range w.Env() {
		p.spec.Env = setEnv(p.spec.Env, name, value)
	}
	if ca := w.Authority(); ca != nil {
		p.trust(ca)
	}
	return w, nil
}

// secret returns a value for the wire to inject: a variable of the caller that the box does not
// have.
func (j *Job) secret(name string) (string, bool) {
	for _, kv := range j.Caller {
		if n, v, _ := strings.Cut(kv, "="); n == name {
			return v, true
		}
	}
	return "", false
}

// Decided turns the wire's refusals into refusals of the run.
func (j *Job) Decided(d carrel.Decision) {
	if d.Allowed {
		return
	}
	r := refusal.Refusal{Kind: refusal.Connect, Operation: d.Protocol, Rule: d.Rule, Reason: d.Reason, Program: d.Process, Certain: true, What: d.Name}
	host := d.Name
	if host == "" {
		host = d.Address
	}
	if r.What = host; d.Port != 0 {
		r.What = fmt.Sprintf("%s:%d", host, d.Port)
		if strings.Contains(host, ":") {
			r.What = fmt.Sprintf("[%s]:%d", host, d.Port)
		}
	}
	if d.Protocol == "dns" {
		r.Kind, r.What = refusal.Name, d.Name
	}
	if host != "" && !strings.HasPrefix(d.Rule, "built-in") {
		r.Allow = "--allow " + host
	}
	if instead := policy.HostInstead(d); instead != "" {
		r.Allow = "--allow " + instead
	}
	j.Log.Add(r)
}

// publish reads --publish.
func (j *Job) publish(p *plan) error {
	for _, text := range j.Box.Publish {
		out, err := settings.ParsePublish(text)
		if err != nil {
			return invalid("--publish", fmt.Errorf("%w: write [ADDRESS:]PORT[:INSIDE]", err))
		}
		p.spec.Publish = append(p.spec.Publish, box.Publish{Outside: netip.AddrPortFrom(out.Address, out.Outside).String(), Inside: out.Inside})
	}
	return nil
}

// trust makes the box's programs trust the wire's authority. It adds the authority to the system's
// bundle, and sets the variables for programs that don't read that bundle.
func (p *plan) trust(ca []byte) {
	const own = "/run/carrel/authority.pem"
	bundle := "/run/carrel/bundle.pem"
	var all []byte
	for _, name := range []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem"} {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if all == nil {
			all = append(append(text, '\n'), ca...)
		}
		if real, err := filepath.EvalSymlinks(name); err == nil {
			p.spec.Mounts = append(p.spec.Mounts, box.Mount{Kind: box.ReadFile, Source: string(append(append(text, '\n'), ca...)), Target: real})
		}
	}
	if all == nil {
		all = ca
	}
	p.spec.Mounts = append(p.spec.Mounts,
		box.Mount{Kind: box.ReadFile, Source: string(ca), Target: own}, box.Mount{Kind: box.ReadFile, Source: string(all), Target: bundle})
	for name, file := range trustenv.Variables(own, bundle) {
		p.spec.Env = setEnv(p.spec.Env, name, file)
	}
}

// setEnv sets a variable.
func setEnv(env []string, name, value string) []string {
	for i, kv := range env {
		if strings.HasPrefix(kv, name+"=") {
			env[i] = name + "=" + value
			return env
		}
	}
	return append(env, name+"="+value)
}

// dieBy ends this process with the signal that ended the command, so that the parent sees the same
// end. If that fails, it returns a shell's status for the signal.
func dieBy(sig syscall.Signal) int {
	signal.Reset(sig)
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // the core would be ours
	// The runtime has its own handlers for some signals, so set the default by hand. A signal to
	// the process may reach another thread after this one has exited. So send it to this thread,
	// which gets it before the call returns.
	runtime.LockOSThread()
	var byDefault [4]uint64 // struct sigaction
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	none := uint64(1) << (sig - 1)
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_UNBLOCK, uintptr(unsafe.Pointer(&none)), 0, 8, 0, 0)
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), sig)
	return 128 + int(sig)
}

func signalName(sig syscall.Signal) string { return unix.SignalName(sig) }
