package sim

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/shell/interp"
)

// output is the reading end of a process's output. Its reads have a deadline, and it tells how many
// bytes are waiting. With these the agent knows that it has read all that an ended process wrote,
// however late a busy machine lets it read.
type output struct {
	pipe *interp.Pipe

	mu     sync.Mutex
	ctx    context.Context // ends at the deadline, or when there is another one
	cancel context.CancelFunc
}

func newOutput(p *interp.Pipe) *output {
	o := &output{pipe: p}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	return o
}

// Read implements io.Reader. At the deadline it returns os.ErrDeadlineExceeded.
func (o *output) Read(b []byte) (int, error) {
	for {
		ctx := o.now()
		n, err := o.pipe.ReadContext(ctx, b)
		if err == nil || !errors.Is(err, ctx.Err()) {
			return n, err
		}
		if o.now() == ctx {
			return n, os.ErrDeadlineExceeded
		}
	}
}

func (o *output) now() context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ctx
}

// SetReadDeadline sets the deadline of reads, also of one that waits. The zero time is no deadline.
func (o *output) SetReadDeadline(t time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.cancel
	if t.IsZero() {
		o.ctx, o.cancel = context.WithCancel(context.Background())
	} else {
		o.ctx, o.cancel = context.WithDeadline(context.Background(), t)
	}
	before()
	return nil
}

// Pending returns how many bytes can be read now.
func (o *output) Pending() (int, error) { return o.pipe.Pending(), nil }

func (o *output) close() {
	o.pipe.CloseRead()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cancel()
}
