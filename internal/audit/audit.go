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

// Options bounds the size of a Log. The zero value has sensible bounds.
type Options struct {
	// MaxFile is the size at which the next file is begun; 0 is 64 MiB.
	MaxFile int64
	// MaxFiles is how many files are kept, the newest included; 0 is 10.
	MaxFiles int
	// MaxAge removes files whose newest decision is older. 0 keeps all files.
	MaxAge time.Duration
	// SyncEvery is the time between two forced writes to the disk; 0 is 1 s. A crash of the daemon
	// loses the last 50 ms. A crash of the machine loses this much.
	SyncEvery time.Duration
	// Queue is how many decisions may wait for the disk; 0 is 65536.
	Queue int
	// Rate is how many decisions of one sandbox are kept one by one each second, separately for
	// allowed and refused ones. Bursts may be five times that; 0 is 200.
	Rate   int
	Logger *slog.Logger
	Now    func() time.Time // nil is time.Now
	// Anchor, unless nil, makes the lines evidence in the signed trail of package trail.
	Anchor Anchor

	open  func(name string) (logFile, error) // nil is the real one
	bytes float64                            // one sandbox's burst of bytes; 0 is a part of MaxFile
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

// Anchor keeps digests of the log's lines where nobody can change them unnoticed. The signed audit
// trail is one. Its methods must not call the log.
type Anchor interface {
	// Egress takes the SHA-256 of the lines of the decisions from first to last, in hexadecimal
	// digits. They are on the disk.
	Egress(first, last int64, digest string)
	// EgressCut says that the decisions up to last are removed by the log's own bounds.
	EgressCut(last int64)
	// EgressLast returns the number of the last decision that it knows.
	EgressLast() int64
}

// Log is the audit log in a directory. It is safe for concurrent use.
type Log struct {
	opts  Options
	files *files
	write writer // used by the writing goroutine only

	mu     sync.Mutex
	queue  queue
	closed bool

	kick    chan struct{} // holds a token when a decision was queued
	asks    chan ask
	closing chan struct{}
	ended   chan struct{} // closed when the writing goroutine has ended
	once    sync.Once
	err     error // of the last write; read after ended is closed
}

var _ carrel.Audits = (*Log)(nil)

// ask is a request to write the queue.
type ask struct {
	sync bool
	done chan error
}

// Open opens the log in a directory, and makes the directory if it is missing. Only one Log may be
// open for a directory at a time. The caller closes it.
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
	if err := l.write.anchor.catchUp(dir, opts, fs.lastSeq()); err != nil {
		return nil, openError(errors.Join(err, fs.close()))
	}
	go l.run()
	return l, nil
}

func openError(err error) error {
	return &carrel.Error{Op: "open audit log", Kind: carrel.Internal, Err: err}
}

// Write queues a decision. It does not wait. After Close it does nothing. Seq is set when the
// decision is written. A zero Time means now.
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

// Sync returns when everything that was queued before is on the disk. Counts of folded decisions
// may follow later.
func (l *Log) Sync(ctx context.Context) error { return l.ask(ctx, true) }

// ask makes the writing goroutine write the queue, and waits for it.
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

// Close writes the queue, ends the followers and waits until everything is on the disk. It returns
// an error if something could not be written.
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
