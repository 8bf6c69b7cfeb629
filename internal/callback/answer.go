package callback

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/carrel-dev/carrel"
)

// Answer runs a program for a call that came over a connection. It returns when the program has
// returned; the caller closes the connection. The program's ctx ends with ctx and with the
// connection. The other end then gets no status, whatever the program returns.
func Answer(ctx context.Context, conn io.ReadWriteCloser, id carrel.ID, call Call, run func(ctx context.Context, c *carrel.ProgramCall) int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	s := newStream(conn)
	p := &provider{s: s, ctx: ctx, replies: make(chan []byte)}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer cancel()
		for {
			kind, size, err := s.head()
			if err != nil || !p.awaited(kind, size) {
				return
			}
			data, err := body(s.r, size)
			if err != nil {
				return
			}
			select {
			case p.replies <- data:
			case <-ctx.Done():
				return
			}
		}
	})
	status := p.run(&carrel.ProgramCall{Sandbox: id, Name: call.Name, Args: call.Args, Env: call.Env, Dir: call.Dir, User: call.User,
		Stdin: input{p}, Stdout: output{p, 'o'}, Stderr: output{p, 'e'}, Files: files{p}}, run)
	// If the provider's end cut the program short, its status is not its own, so send none.
	err := context.Cause(ctx)
	if err == nil {
		err = s.write('x', fromNumber(uint32(status&0xff)))
	}
	// The other end closes once it has the status; otherwise this end does, a little later.
	if stop() {
		_ = conn.Close()
	}
	cancel()
	reading.Wait()
	return err
}

// provider is the provider's end of one call.
type provider struct {
	s       *stream
	ctx     context.Context
	replies chan []byte
	asking  sync.Mutex   // one question at a time
	want    atomic.Int32 // the letter of the expected answer, 0 for none
}

// awaited reports whether a frame is the expected answer. No memory is allocated for other frames.
func (p *provider) awaited(kind byte, size uint32) bool {
	return p.want.CompareAndSwap(int32(kind), 0) && kind != 0 && (kind != 'i' || size <= maxChunk)
}

// run runs the program. A panic ends only this call.
func (p *provider) run(c *carrel.ProgramCall, run func(ctx context.Context, c *carrel.ProgramCall) int) (status int) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(c.Stderr, "%s: the program failed inside: %v\n", c.Name, r)
			status = 70
		}
	}()
	return run(p.ctx, c)
}

// ask sends a question and waits for its answer.
func (p *provider) ask(kind byte, data []byte, want byte) ([]byte, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	p.want.Store(int32(want))
	if err := p.s.write(kind, data); err != nil {
		return nil, err
	}
	select {
	case r := <-p.replies:
		return r, nil
	case <-p.ctx.Done():
		return nil, context.Cause(p.ctx)
	}
}

// input is the call's standard input.
type input struct{ p *provider }

// Read implements io.Reader.
func (i input) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	got, err := i.p.ask('r', fromNumber(uint32(min(len(b), maxChunk))), 'i')
	switch {
	case err != nil:
		return 0, err
	case len(got) > len(b):
		return 0, errTurn
	case len(got) == 0:
		return 0, io.EOF
	}
	return copy(b, got), nil
}

// output is one of its outputs.
type output struct {
	p    *provider
	kind byte
}

// Write implements io.Writer.
func (o output) Write(b []byte) (int, error) {
	if err := o.p.ctx.Err(); err != nil {
		return 0, err
	}
	return o.p.s.writeAll(o.kind, b)
}

// files is the sandbox's disk.
type files struct{ p *provider }

var _ carrel.ProgramFiles = files{}

// ask sends a request about a file.
func (f files) ask(q fileRequest) (a fileAnswer, err error) {
	b, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	if b, err = f.p.ask('f', b, 'F'); err != nil {
		return a, err
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return a, err
	}
	if a.Error != "" {
		err = errors.New(a.Error)
		if kind := kinds[a.Kind]; kind != nil {
			err = &fs.PathError{Op: q.Op, Path: q.Name, Err: kind}
		}
	}
	return a, err
}

// ReadFile implements carrel.ProgramFiles.
func (f files) ReadFile(name string) ([]byte, error) {
	a, err := f.ask(fileRequest{Op: "read", Name: name})
	return a.Data, err
}

// WriteFile implements carrel.ProgramFiles.
func (f files) WriteFile(name string, data []byte, perm fs.FileMode) error {
	if len(data) > maxFrame/2 {
		return errors.New("the file is too large")
	}
	_, err := f.ask(fileRequest{Op: "write", Name: name, Data: data, Perm: perm})
	return err
}

// Open implements carrel.ProgramFiles.
func (f files) Open(name string) (io.ReadCloser, error) {
	b, err := f.ReadFile(name)
	return io.NopCloser(bytes.NewReader(b)), err
}

// Stat implements carrel.ProgramFiles.
func (f files) Stat(name string) (fs.FileInfo, error) {
	a, err := f.ask(fileRequest{Op: "stat", Name: name})
	if err == nil && len(a.Infos) != 1 {
		err = errTurn
	}
	if err != nil {
		return nil, err
	}
	return a.Infos[0], nil
}

// ReadDir implements carrel.ProgramFiles.
func (f files) ReadDir(name string) ([]fs.FileInfo, error) {
	a, err := f.ask(fileRequest{Op: "list", Name: name})
	out := make([]fs.FileInfo, len(a.Infos))
	for i, e := range a.Infos {
		out[i] = e
	}
	return out, err
}

// MkdirAll implements carrel.ProgramFiles.
func (f files) MkdirAll(name string, perm fs.FileMode) error {
	_, err := f.ask(fileRequest{Op: "mkdir", Name: name, Perm: perm})
	return err
}

// Remove implements carrel.ProgramFiles.
func (f files) Remove(name string) error {
	_, err := f.ask(fileRequest{Op: "remove", Name: name})
	return err
}

// Rename implements carrel.ProgramFiles.
func (f files) Rename(from, to string) error {
	_, err := f.ask(fileRequest{Op: "rename", Name: from, To: to})
	return err
}
