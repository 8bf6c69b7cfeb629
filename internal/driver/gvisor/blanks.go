package gvisor

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

var _ driver.Blanker = (*Driver)(nil)

// errBlank means that a sentry that was started ahead failed. A sentry started for the sandbox may
// succeed.
var errBlank = errors.New("a sentry that was started ahead failed")

// blankGroup begins the names of control groups that were made before their sandboxes were known.
// The groups keep these names.
const blankGroup = "blank-"

const (
	// blankPause is the time without any creation before a blank is made. A sandbox that was just
	// created is busy with its first command.
	blankPause = 30 * time.Millisecond
	// blankRetry is the pause after a blank failed. It doubles with each failure, up to
	// blankRetryMost.
	blankRetry, blankRetryMost = time.Second, time.Minute
	// blankPids bounds the tasks of a blank.
	blankPids = 256
	// blankTime bounds the time from a blank's start until it waits for its job.
	blankTime = time.Minute
)

// blanks keeps a few sentries that were started ahead. See [blankBoot] for the sentry's side.
//
// A blank is made when one was taken or is missing. Only one is made at a time, and none while a
// sandbox is being created. Until it is taken, its control group gets the processor only when no
// sandbox wants it. The blank is a child of this process and holds one end of a socket; this
// process holds the other end, and the blank ends when this process does. The sandbox keeps the
// blank's control group. So the group counts all memory that the sandbox uses, and nothing is moved
// later.
type blanks struct {
	d    *Driver
	want int

	mu       sync.Mutex
	all      map[*blank]struct{} // each until it is taken or seen to end
	cpus     int                 // processors of the next blanks: those of the last request
	creating int
	last     time.Time   // when the last creation ended
	timer    *time.Timer // runs refill; nil while nothing is planned
	making   bool
	failed   int // in a row
	closed   bool
	stats    carrel.BlankSentries
	done     sync.WaitGroup // the watch goroutines
}

// blank is one blank sentry.
type blank struct {
	cpus, uid, pid int
	pidfd          *os.File
	group          *cgroup.Group
	name           string // of the group
	conn           *net.UnixConn

	// Guarded by blanks.mu.
	ready bool // it waits for its job
	taken bool // by a creation, which owns it
}

// Blanks implements driver.Blanker.
func (d *Driver) Blanks() carrel.BlankSentries {
	p := &d.blanks
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Keep = p.want
	for b := range p.all {
		if b.ready {
			s.Ready++
		}
	}
	return s
}

// take returns a blank for cpus processors; nil if there is none.
func (p *blanks) take(cpus int) *blank {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.want == 0 || p.closed {
		return nil
	}
	p.cpus = cpus
	for b := range p.all {
		if b.ready && b.cpus == cpus {
			delete(p.all, b)
			b.ready, b.taken = false, true
			p.stats.Taken++
			return b
		}
	}
	p.stats.Missed++
	return nil
}

// busy notes that a sandbox is being created, until the caller calls the returned function.
func (p *blanks) busy() func() {
	if p.want == 0 {
		return func() {}
	}
	p.mu.Lock()
	p.creating++
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.creating--
		p.last = time.Now()
		p.laterLocked(blankPause)
	}
}

// begin makes the first blanks, for the usual number of processors.
func (p *blanks) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cpus == 0 {
		p.cpus = leastCPUs
	}
	p.laterLocked(blankPause)
}

// laterLocked runs refill after a while, unless a run is planned already.
func (p *blanks) laterLocked(after time.Duration) {
	if p.timer == nil && !p.closed && p.want > 0 {
		p.timer = time.AfterFunc(after, p.refill)
	}
}

// refill starts a blank if one is missing and no creation is going on.
func (p *blanks) refill() {
	p.mu.Lock()
	p.timer = nil
	if p.closed || p.making || p.creating > 0 { // when that ends, refill runs again
		p.mu.Unlock()
		return
	}
	if quiet := time.Since(p.last); quiet < blankPause {
		p.laterLocked(blankPause - quiet)
		p.mu.Unlock()
		return
	}
	var useless *blank
	for b := range p.all {
		if b.cpus != p.cpus && b.ready {
			useless = b
		}
	}
	if len(p.all) >= p.want && useless == nil {
		p.mu.Unlock()
		return
	}
	if useless != nil {
		useless.ready = false
	}
	p.making = true
	cpus := p.cpus
	p.done.Add(1)
	p.mu.Unlock()
	defer p.done.Done()
	if useless != nil {
		_ = useless.conn.Close() // it ends, and watch asks again
	}
	b, err := p.d.startBlank(cpus)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.making = false
		p.failLocked(err)
		return
	}
	p.all[b] = struct{}{}
	p.done.Go(func() { p.watch(b) })
	if p.closed {
		_ = b.conn.Close()
	}
}

// failLocked doubles the pause after each failure.
func (p *blanks) failLocked(err error) {
	if p.stats.Failed++; p.closed {
		return
	}
	if p.failed == 0 {
		p.d.log.Warn("no sentry can be started ahead", "err", err)
	}
	p.failed++
	p.laterLocked(min(blankRetry<<min(p.failed-1, 10), blankRetryMost))
}

// watch follows a blank until it is taken or has ended.
func (p *blanks) watch(b *blank) {
	buf := make([]byte, 1)
	_ = b.conn.SetReadDeadline(time.Now().Add(blankTime))
	n, err := b.conn.Read(buf)
	_ = b.conn.SetReadDeadline(time.Time{})
	ready := err == nil && n == 1
	p.mu.Lock()
	p.making = false
	if ready {
		b.ready = !p.closed
		p.failed = 0
		p.laterLocked(blankPause) // for the next one, if one is missing
	}
	p.mu.Unlock()
	if ready {
		_, _ = b.conn.Read(buf) // until its end, or ours
	}
	p.mu.Lock()
	if b.taken {
		p.mu.Unlock()
		return
	}
	if b.ready {
		p.stats.Failed++
		b.ready = false
	}
	p.mu.Unlock()
	status := p.d.endBlank(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, b)
	if ready {
		p.laterLocked(blankPause)
		return
	}
	p.failLocked(fmt.Errorf("it ended before it was ready (%s)", status))
}

// owns reports whether a process or a control group belongs to a blank.
func (p *blanks) owns(pid int, group string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for b := range p.all {
		if b.pid == pid || b.name == group {
			return true
		}
	}
	return false
}

// close ends all blanks.
func (p *blanks) close() {
	p.mu.Lock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	for b := range p.all {
		_ = b.conn.Close()
	}
	p.mu.Unlock()
	p.done.Wait()
}

// startBlank starts a blank.
func (d *Driver) startBlank(cpus int) (_ *blank, err error) {
	b := &blank{cpus: cpus, name: blankGroup + strings.ToLower(rand.Text()[:12])}
	if b.group, err = d.groups.Create(b.name, cgroup.Limits{Pids: blankPids}); err != nil {
		return nil, err
	}
	b.group.GiveWay(true)
	b.uid = d.uids.take(-1)
	defer func() {
		if err != nil {
			closeConn(b.conn)
			d.uids.drop(b.uid)
			hosted.DestroyGroup(context.Background(), b.group)
		}
	}()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "blank"), os.NewFile(uintptr(fds[1]), "blank")
	defer hosted.CloseAll(ours, theirs)
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	b.conn = conn.(*net.UnixConn)
	const socket = 3
	args, files := d.withFilter([]string{sentryName}, []*os.File{d.program.null, d.program.null, theirs})
	args = append(args, blankArg+strconv.Itoa(socket), blankCPUs+strconv.Itoa(cpus))
	args = append(append(args, d.flags()...), "boot", blankID)
	own, err := d.ownKernel()
	if err != nil {
		return b, err
	}
	b.pid, b.pidfd, err = d.startSentry(own, args, b.uid, b.group, files)
	return b, err
}

// closeConn closes a connection, if there is one.
func closeConn(c *net.UnixConn) {
	if c != nil {
		_ = c.Close()
	}
}

// endBlank ends a blank in any state, removes every trace of it and returns how it ended.
func (d *Driver) endBlank(b *blank) (status string) {
	ctx, cancel := context.WithTimeout(context.Background(), hosted.UndoTime)
	defer cancel()
	_ = b.conn.Close()
	proc.Kill(b.pidfd)
	hosted.WaitDead(ctx, b.pidfd)
	status = proc.Reap(b.pidfd, b.pid)
	hosted.CloseAll(b.pidfd)
	hosted.DestroyGroup(ctx, b.group)
	d.uids.drop(b.uid)
	return status
}

// give gives a blank its job. When it returns nil, the launch owns the process. After an error the
// process is gone; the error is [errBlank] if the blank was at fault.
func (d *Driver) give(l *launch, b *blank, log *os.File, limits cgroup.Limits) error {
	err := b.group.Limit(limits)
	if err == nil {
		b.group.GiveWay(false)
		err = l.send(b, log)
	}
	if err != nil {
		d.endBlank(b)
		return err
	}
	_ = b.conn.Close()
	l.blank, l.pid, l.pidfd, l.uid, l.group = true, b.pid, b.pidfd, b.uid, b.group
	return nil
}

// send sends the job, the only message that a blank gets.
func (l *launch) send(b *blank, log *os.File) error {
	j := job{ID: string(l.spec.ID), Args: l.numbered(jobFirst)}
	if l.paging > 0 {
		j.Pages = l.pagesText(jobFirst)
	}
	told, err := json.Marshal(j)
	if err != nil {
		return err
	}
	fds := []int{int(log.Fd())}
	for _, f := range l.files {
		fds = append(fds, int(f.Fd()))
	}
	if len(told) > maxJob || len(fds) > maxJobFiles {
		return fmt.Errorf("%w: its job of %d bytes and %d files is too long", errBlank, len(told), len(fds))
	}
	if _, _, err := b.conn.WriteMsgUnix(told, unix.UnixRights(fds...), nil); err != nil {
		return fmt.Errorf("%w: %w", errBlank, err)
	}
	return nil
}
