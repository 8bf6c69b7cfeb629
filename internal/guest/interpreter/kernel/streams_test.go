package kernel_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/guest/interpreter/kernel"
)

// scripted is a program whose output a test writes.
type scripted struct {
	in, out, err    *io.PipeReader
	inW, outW, errW *io.PipeWriter
	ended           chan struct{}
}

func newScripted() *scripted {
	p := &scripted{ended: make(chan struct{})}
	p.in, p.inW = io.Pipe()
	p.out, p.outW = io.Pipe()
	p.err, p.errW = io.Pipe()
	return p
}

func (p *scripted) PID() int              { return 1 }
func (p *scripted) Stdin() io.WriteCloser { return p.inW }
func (p *scripted) Stdout() io.Reader     { return p.out }
func (p *scripted) Stderr() io.Reader     { return p.err }
func (p *scripted) Wait() string          { <-p.ended; return "it was killed" }
func (p *scripted) Kill() {
	_, _, _ = p.outW.Close(), p.errW.Close(), p.in.Close()
	select {
	case <-p.ended:
	default:
		close(p.ended)
	}
}

// TestStreams has a runner's lines come in pieces, among text that looks like them.
func TestStreams(t *testing.T) {
	r, err := kernel.StreamsRunner(kernel.JavaScript, "/dir")
	if err != nil || r.Command[1] != "/dir/quick.js" || len(r.Files["quick.js"]) == 0 {
		t.Fatalf("%v, %v", r.Command, err)
	}
	mark := r.Command[len(r.Command)-1]
	p := newScripted()
	long := strings.Repeat("x", 3<<20)
	go func() {
		fmt.Fprintf(p.outW, "%s{\"type\":\"ready\"}\n", mark)
		in := bufio.NewScanner(p.in)
		in.Scan()
		var request struct{ ID int }
		_ = json.Unmarshal(in.Bytes(), &request)
		for _, piece := range []string{"plain ", mark[:3], "no mark ä"[:9], "ä"[1:], mark[:5], mark[5:],
			`{"type":"res`, `ult","main":true,"data":{"text/plain":"` + long, `"}}` + "\n" + "after",
			"\n" + mark + fmt.Sprintf(`{"type":"done","id":%d}`, request.ID) + "\n"} {
			_, _ = io.WriteString(p.outW, piece)
		}
		in.Scan() // the next cell, in which it dies
		p.Kill()
	}()
	k, err := kernel.NewStreams(t.Context(), p, r)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	var printed, value string
	sink := func(e kernel.Event) error {
		printed += e.Text
		if e.Type == kernel.Result {
			value = plain(e, "text/plain")
		}
		return nil
	}
	if err := k.Run(t.Context(), kernel.Cell{Code: "1"}, sink); err != nil {
		t.Fatal(err)
	}
	if want := "plain " + mark[:3] + "no mark ä" + "after\n"; printed != want || value != long {
		t.Errorf("%q, want %q; a value of %d bytes", printed, want, len(value))
	}
	if err := k.Run(t.Context(), kernel.Cell{Code: "2"}, sink); !errors.Is(err, kernel.ErrDied) {
		t.Errorf("a runner that died: %v", err)
	}
	if k.Reason() != "it was killed" {
		t.Errorf("reason %q", k.Reason())
	}
}

// TestStreamsThatFail has a program end before it is ready.
func TestStreamsThatFail(t *testing.T) {
	r, err := kernel.StreamsRunner(kernel.Python, "/dir")
	if err != nil {
		t.Fatal(err)
	}
	p := newScripted()
	go func() {
		_, _ = io.WriteString(p.errW, "no such module\n")
		p.Kill()
	}()
	if _, err := kernel.NewStreams(t.Context(), p, r); err == nil || !strings.Contains(err.Error(), "no such module") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := kernel.NewStreams(ctx, newScripted(), r); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
