package kernel

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/internal/guest/interpreter/jupyter"
)

// interruptTimeout bounds an interrupt by message.
const interruptTimeout = 2 * time.Second

// notebook is a Jupyter kernel.
type notebook struct {
	*process
	client *jupyter.Client
	// hooked is whether our module in the kernel sets the environment that comes with a request.
	hooked bool
	// vars writes code that sets variables, for other kernels; nil if we know none for the language.
	vars *variables
	// byMessage is whether the kernel wants interrupts as messages.
	byMessage bool
}

// environment goes in the metadata of a request.
type environment struct {
	Base map[string]string `json:"base,omitempty"`
	Env  map[string]string `json:"env,omitempty"`
}

// Run runs one cell.
func (n *notebook) Run(ctx context.Context, c Cell, out Sink) error {
	r := jupyter.Request{Code: c.Code}
	if n.hooked && len(c.Base)+len(c.Env) > 0 {
		r.Metadata = map[string]environment{"carrel": {Base: c.Base, Env: c.Env}}
	}
	if !n.hooked {
		if err := n.environ(ctx, c); err != nil {
			return err
		}
	}
	failed := false
	return n.ended(n.client.Execute(ctx, r, func(m jupyter.Message) error {
		e, ok := eventOf(m)
		if ok && e.Type == Error {
			ok = !failed
			failed = true
		}
		if !ok {
			return nil
		}
		return n.stalled(func() error { return out(e) })
	}))
}

// stretching is a cell that shows and keeps nothing, and goes through what shows values.
const stretching = "get_ipython().display_formatter.format(1) and None"

var _ Stretcher = (*notebook)(nil)

// Stretch implements Stretcher for our own Python kernels. Others do nothing.
func (n *notebook) Stretch(ctx context.Context) error {
	if !n.hooked {
		return nil
	}
	return n.ended(n.client.Execute(ctx, jupyter.Request{Code: stretching, Silent: true},
		func(jupyter.Message) error { return nil }))
}

// environ sets the variables by code of the language.
func (n *notebook) environ(ctx context.Context, c Cell) error {
	if n.vars == nil {
		return nil
	}
	code := n.vars.change(c)
	if code == "" {
		return nil
	}
	return n.ended(n.client.Execute(ctx, jupyter.Request{Code: code, Silent: true},
		func(jupyter.Message) error { return nil }))
}

// ended makes ErrDied of an error that says that the sockets are closed.
func (n *notebook) ended(err error) error {
	if !errors.Is(err, jupyter.ErrGone) {
		return err
	}
	select {
	case <-n.done:
	case <-time.After(interruptTimeout): // it closed its sockets and lives on: of no use either
		n.condemn("it closed its connection to the interpreter")
	}
	return ErrDied
}

// Settle waits until the kernel is idle.
func (n *notebook) Settle(ctx context.Context) error { return n.ended(n.client.Settle(ctx)) }

// Interrupt interrupts the running cell.
func (n *notebook) Interrupt() {
	if !n.byMessage {
		n.process.Interrupt()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), interruptTimeout)
	defer cancel()
	_ = n.client.Interrupt(ctx) // a kernel that does not answer is killed in the end
}

// Close ends the kernel.
func (n *notebook) Close() {
	n.process.Close()
	_ = n.client.Close()
}

// eventOf translates a message of a kernel's output.
func eventOf(m jupyter.Message) (e Event, ok bool) {
	if m.Lost > 0 {
		return Event{Type: Stderr, Text: tooLong}, true
	}
	var c struct {
		Name      string                     `json:"name"`
		Text      string                     `json:"text"`
		Count     int                        `json:"execution_count"`
		Data      map[string]json.RawMessage `json:"data"`
		Status    string                     `json:"status"`
		EName     string                     `json:"ename"`
		EValue    string                     `json:"evalue"`
		Traceback []string                   `json:"traceback"`
	}
	if json.Unmarshal(m.Content, &c) != nil {
		return Event{}, false
	}
	switch m.Header.Type {
	case "stream":
		if e = (Event{Type: Stdout, Text: c.Text}); c.Name == "stderr" {
			e.Type = Stderr
		}
		return e, c.Text != ""
	case "execute_input":
		return Event{Type: Count, N: c.Count}, true
	case "display_data", "update_display_data", "execute_result":
		return Event{Type: Result, Main: m.Header.Type == "execute_result", Data: forms(c.Data)}, true
	case "execute_reply":
		// A kernel that fails to describe an error, such as one without memory, says it here only.
		e = Event{Type: Error, Name: cmp.Or(c.EName, "KernelError"), Value: c.EValue,
			Traceback: strings.Join(c.Traceback, "\n")}
		return e, c.Status == "error"
	case "error":
		return Event{Type: Error, Name: c.EName, Value: c.EValue,
			Traceback: strings.Join(c.Traceback, "\n")}, true
	}
	return Event{}, false
}
