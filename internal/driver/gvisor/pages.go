package gvisor

import (
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
	"gvisor.dev/gvisor/pkg/sentry/state/stateipc"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"
)

// A sentry that restores a memory reads its pages while the sandbox already runs. gVisor's own
// reader uses 128 threads. On a small machine they leave the sandbox no processor until the last
// page is in.
//
// But gVisor can also read a snapshot's files through a server, over a socket, and the server says
// how much is read at once. This file is that server: a few goroutines in the sentry itself, which
// holds the files since its start. One thread of low priority reads the pages. gVisor asks first
// for the pages that a task waits for.

// pagesArg is the start of the sentry's first argument. Two numbers follow it: the first descriptor
// for takePages, and the milliseconds for which reads without a waiting task are held back (see
// hold). The descriptors are one end of a socket pair, and the files of a snapshot in the order of
// memoryFiles. The daemon sends the other end with the command to restore.
const pagesArg = "carrel-pages="

// pagesForGood stands in it for the milliseconds of a hold without an end.
const pagesForGood = "all"

// Sizes and bounds of reads.
const (
	pagesRead   = 256 << 10 // bytes at once
	pagesHeld   = 64 << 10  // the same during a hold
	pagesWanted = 16 << 10  // the same during a hold for good: each wait also reads one that nobody wants
	pagesQueue  = 2         // reads at once: more would delay reads that a task waits for
	pagesNice   = 10        // nice value, so that the sentry's other threads run first
	pagesRanges = 64        // of memory in one read
)

// loadingGC is Go's GOGC while a snapshot is loaded. Hardly any decoded object is garbage. With the
// usual 100 the collector would scan the growing heap four times.
const loadingGC = 400

// decodeTime is a long time for the decoding of a snapshot's objects.
const decodeTime = 10 * time.Second

// takePages takes the descriptors out of the arguments and serves the files. It runs in the sentry,
// before the sentry gives up its rights: its filter forbids to lower a thread's priority.
func takePages() {
	if len(os.Args) < 2 {
		return
	}
	number, ok := strings.CutPrefix(os.Args[1], pagesArg)
	if !ok {
		return
	}
	os.Args = append(os.Args[:1:1], os.Args[2:]...)
	servePages(number, false)
}

// servePages serves the files that text names, see pagesArg. forked says that this process has
// started other processes already.
func servePages(text string, forked bool) {
	number, rest, _ := strings.Cut(text, ",")
	ms, boot, _ := strings.Cut(rest, ",")
	drawsBootID.Store(boot == newBoot)
	first, err := strconv.Atoi(number)
	if err != nil || first < 3 {
		return
	}
	if ms == pagesForGood {
		held.Store(newHold(holdForGood))
	} else if n, err := strconv.ParseUint(ms, 10, 31); err == nil && n > 0 {
		held.Store(newHold(time.Duration(n) * time.Millisecond))
	}
	files := savedFiles{}
	for i, name := range memoryFiles {
		files[name] = newPageReader(first+1+i, name == checkpointfiles.PagesFileName, forked)
	}
	socket, err := unet.NewSocket(first)
	if err != nil {
		return // then the command to restore fails
	}
	server, err := stateipc.NewAsyncFileServer(files)
	if err != nil {
		socket.Close()
		return
	}
	rpc := urpc.NewServer()
	rpc.Register(server)
	old := debug.SetGCPercent(loadingGC)
	if held.Load().isForGood() { // it is never done, but its objects are decoded by then
		time.AfterFunc(decodeTime, func() {
			debug.SetGCPercent(old)
			runtime.GC()
		})
	}
	go func() {
		_ = rpc.Handle(socket) // until all is read
		if h := held.Load(); h != nil {
			h.end.Store(true)
		}
		server.Stop()
		debug.SetGCPercent(old)
		// Some descriptors are closed only when the collector finds that they are no longer in use.
		// Without this call that may take minutes.
		runtime.GC()
	}()
}

// savedFiles serves a snapshot's files, each once.
type savedFiles map[string]*pageReader

// Destroy implements stateipc.AsyncFileServerImpl. It does nothing: the client closes each file
// that it opened.
func (s savedFiles) Destroy() {}

// OpenRead implements stateipc.AsyncFileServerImpl.
func (s savedFiles) OpenRead(name string) (stateio.AsyncReader, error) {
	r, ok := s[name]
	if !ok {
		return nil, os.ErrNotExist
	}
	delete(s, name)
	return r, nil
}

// OpenWrite implements stateipc.AsyncFileServerImpl.
func (s savedFiles) OpenWrite(string) (stateio.AsyncWriter, error) { return nil, os.ErrPermission }

// pageRead is one requested read.
type pageRead struct {
	id   int
	off  int64
	file int // descriptor of the destination
	into []memmap.FileRange
}

// pageReader reads a file in a goroutine of its own. It writes the pages with write calls to the
// file behind the memory. Touching the new pages one by one through a mapping would cost the kernel
// twice the time.
type pageReader struct {
	fd     int
	files  []int // copies of descriptors, see RegisterDestinationFD
	reads  chan pageRead
	done   chan stateio.Completion
	worker sync.WaitGroup
}

var _ stateio.AsyncReader = (*pageReader)(nil)

// newPageReader starts a reader of fd, which it owns. If isPages, it reads a memory's pages, and its
// thread gets a low priority.
//
// A thread of low priority can't get its priority back, so it is used for nothing else later. When
// its work is done the thread ends, unless this process had started other processes before
// (forked). The kernel kills a process in which programs run when the thread that started it ends,
// and that may be this thread. So then it sleeps for ever.
func newPageReader(fd int, isPages, forked bool) *pageReader {
	// During a hold for good hardly any read is one that nobody waits for.
	giveWay := isPages && !held.Load().isForGood()
	r := &pageReader{fd: fd, reads: make(chan pageRead, pagesQueue), done: make(chan stateio.Completion, pagesQueue)}
	ready := make(chan struct{})
	r.worker.Add(1)
	go func() {
		if giveWay {
			runtime.LockOSThread() // for ever
			_ = unix.Setpriority(unix.PRIO_PROCESS, 0, pagesNice)
		}
		close(ready)
		buf := make([]byte, pagesRead)
		for read := range r.reads {
			if isPages {
				held.Load().wait()
			}
			n, err := r.copy(read, buf)
			r.done <- stateio.Completion{ID: read.id, N: n, Err: err}
		}
		r.worker.Done()
		if giveWay && forked {
			select {}
		}
	}()
	<-ready
	return r
}

// copy does one read, through buf.
func (r *pageReader) copy(read pageRead, buf []byte) (done uint64, err error) {
	total := uint64(0)
	for _, fr := range read.into {
		total += fr.Length()
	}
	n, err := whole(unix.Pread, r.fd, buf[:total], read.off)
	buf = buf[:n]
	for _, fr := range read.into {
		part := buf[:min(uint64(len(buf)), fr.Length())]
		n, werr := whole(unix.Pwrite, read.file, part, int64(fr.Start))
		if done += uint64(n); werr != nil {
			return done, werr
		}
		buf = buf[len(part):]
	}
	return done, err
}

// whole reads or writes all of b, unless the file ends.
func whole(do func(fd int, b []byte, off int64) (int, error), fd int, b []byte, off int64) (done int, err error) {
	for done < len(b) {
		n, err := do(fd, b[done:], off+int64(done))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return done, err
		case n == 0:
			return done, io.EOF
		default:
			done += n
		}
	}
	return done, nil
}

// Close implements stateio.AsyncReader.
func (r *pageReader) Close() error {
	close(r.reads)
	r.worker.Wait()
	for _, fd := range r.files {
		unix.Close(fd)
	}
	return unix.Close(r.fd)
}

// NeedRegisterDestinationFD implements stateio.AsyncReader.
func (r *pageReader) NeedRegisterDestinationFD() bool { return true }

// RegisterDestinationFD implements stateio.AsyncReader.
func (r *pageReader) RegisterDestinationFD(fd int32, _ uint64, _ []stateio.ClientFileRangeSetting) (stateio.DestinationFile, error) {
	own, err := unix.Dup(int(fd))
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	r.files = append(r.files, own)
	return own, nil
}

// MaxReadBytes implements stateio.AsyncReader.
func (r *pageReader) MaxReadBytes() uint64 {
	switch h := held.Load(); {
	case h.isForGood():
		return pagesWanted
	case h != nil:
		return pagesHeld
	}
	return pagesRead
}

// MaxRanges implements stateio.AsyncReader.
func (r *pageReader) MaxRanges() int { return pagesRanges }

// MaxParallel implements stateio.AsyncReader.
func (r *pageReader) MaxParallel() int {
	if held.Load().isForGood() {
		return 1
	}
	return pagesQueue
}

// AddRead implements stateio.AsyncReader.
func (r *pageReader) AddRead(id int, off int64, file stateio.DestinationFile, into memmap.FileRange, _ []byte) {
	r.reads <- pageRead{id, off, file.(int), []memmap.FileRange{into}}
}

// AddReadv implements stateio.AsyncReader.
func (r *pageReader) AddReadv(id int, off int64, _ uint64, file stateio.DestinationFile, into []memmap.FileRange, _ []unix.Iovec) {
	r.reads <- pageRead{id, off, file.(int), into}
}

// Wait implements stateio.AsyncReader.
func (r *pageReader) Wait(cs []stateio.Completion, atLeast int) ([]stateio.Completion, error) {
	return stateio.CompletionChanWait(r.done, cs, atLeast)
}
