package audit

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// Options says how large a Log may grow. The zero value has sensible bounds.
type Options struct {
	// MaxFile is how large a file grows before the next is begun; 0 is 64 MiB.
	MaxFile int64
	// MaxFiles is how many files are kept, the newest included; 0 is 10.
	MaxFiles int
	// MaxAge removes files whose newest decision is older; 0 keeps them.
	MaxAge time.Duration
	// SyncEvery is how often what was written is forced to the disk; 0 is 1 s. A crash
	// of the daemon loses the last 50 ms, one of the machine this much.
	SyncEvery time.Duration
	// Queue is how many decisions wait for the disk; 0 is 65536.
	Queue int
	// Rate is how many allowed, and how many refused, decisions of one sandbox are kept
	// one by one each second, with bursts of five times that; 0 is 200.
	Rate   int
	Logger *slog.Logger
	Now    func() time.Time // nil is time.Now

	open  func(name string) (logFile, error) // nil is the real one
	bytes float64                            // of a sandbox at once; 0 is a part of MaxFile
}

func (o Options) withDefaults() Options {
	if o.MaxFile <= 0 {
		o.MaxFile = 64 << 20
	}
	if o.MaxFiles <= 0 {
		o.MaxFiles = 10
	}
	if o.SyncEvery <= 0 {
		o.SyncEvery = time.Second
	}
	if o.Queue <= 0 {
		o.Queue = 65536
	}
	if o.Rate <= 0 {
		o.Rate = 200
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.bytes <= 0 {
		o.bytes = float64(o.MaxFile) / burstShare
	}
	if o.open == nil {
		o.open = openLogFile
	}
	return o
}

// Log is the audit log in a directory. It is safe for concurrent use.
type Log struct {
	opts  Options
	files *files
	write writer // of the writing goroutine alone

	mu     sync.Mutex
	queue  queue
	closed bool

	kick    chan struct{} // holds a token when something was queued
	asks    chan ask
	closing chan struct{}
	ended   chan struct{} // closed when the writing goroutine has ended
	once    sync.Once
	err     error // of the last write; read after ended
}

var _ carrel.Audits = (*Log)(nil)

// ask is a request to write what is queued.
type ask struct {
	sync bool
	done chan error
}

// Open opens the log in a directory, which it makes if it is missing. One Log may
// be open for a directory at a time. The caller closes it.
func Open(dir string, opts Options) (*Log, error) {
	opts = opts.withDefaults()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, openError(err)
	}
	fs, err := openFiles(dir, opts)
	if err != nil {
		return nil, openError(err)
	}
	l := &Log{opts: opts, files: fs, kick: make(chan struct{}, 1), asks: make(chan ask),
		closing: make(chan struct{}), ended: make(chan struct{})}
	l.queue.init(opts)
	l.write = writer{log: l, next: fs.lastSeq() + 1}
	go l.run()
	return l, nil
}

func openError(err error) error {
	return &carrel.Error{Op: "open audit log", Kind: carrel.Internal, Err: err}
}

// Write queues a decision. It does not wait, and takes nothing after Close. Seq is
// given when it is written; a Time that is zero is now.
func (l *Log) Write(d carrel.Decision) {
	now := l.opts.Now()
	d, cost := bound(d, now)
	l.mu.Lock()
	if !l.closed {
		l.queue.put(d, cost, now)
	}
	l.mu.Unlock()
	select {
	case l.kick <- struct{}{}:
	default: // it has one already
	}
}

// Sync returns when all that was queued before is on the disk. Counts of what was
// folded may follow later.
func (l *Log) Sync(ctx context.Context) error { return l.ask(ctx, true) }

// ask has the writing goroutine write what is queued, and waits for it.
func (l *Log) ask(ctx context.Context, sync bool) error {
	a := ask{sync, make(chan error, 1)}
	select {
	case l.asks <- a:
		return <-a.done
	case <-l.ended:
		return errClosed()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func errClosed() error {
	return &carrel.Error{Op: "read audit log", Kind: carrel.Unavailable, Err: errors.New("the log is closed")}
}

// Close writes what is queued, ends the followers and waits until all is on the
// disk. Its error says that something could not be written.
func (l *Log) Close() error {
	l.once.Do(func() {
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		close(l.closing)
	})
	<-l.ended
	l.files.wait()
	return l.err
}
