package codemode

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/shell/tools/script/quickjs"
)

// Tool is a function that can be granted to scripts.
type Tool struct {
	Name        string
	Description string
	// Schema is the JSON schema of the arguments, an object; nil is any.
	Schema json.RawMessage
	// Call takes a JSON object and returns JSON. Its error is thrown in the script.
	Call func(ctx context.Context, args json.RawMessage) (json.RawMessage, error)
}

// Limits bounds a script. Zero fields have defaults.
type Limits struct {
	Time   time.Duration // in total, including tools; 0 is a minute
	Steps  int64         // each about a hundred nanoseconds; 0 is 300 million
	Memory int64         // bytes; 0 is 64 MB
	Output int           // bytes of console and result; 0 is 1 MB
}

func (l Limits) defaults() Limits {
	if l.Time == 0 {
		l.Time = time.Minute
	}
	if l.Steps == 0 {
		l.Steps = 300_000_000
	}
	if l.Memory == 0 {
		l.Memory = 64 << 20
	}
	if l.Output == 0 {
		l.Output = 1 << 20
	}
	return l
}

// Options are the options of Run.
type Options struct {
	Tools  []Tool
	Guard  *Guard // judges each call; nil denies all
	Limits Limits
}

// Result is the result of a script.
type Result struct {
	Value  json.RawMessage `json:"value,omitempty"` // what it returned, as JSON
	Output string          `json:"output"`          // what it wrote to the console
}

// ErrLimit is the error of a script that was ended at a limit.
var ErrLimit = errors.New("limit exceeded")

//go:embed prelude.js
var prelude string

var image = sync.OnceValue(func() *quickjs.Image {
	return quickjs.NewImage([]string{"call", "print"}, "codemode", prelude)
})

// Run runs a script, which is the body of an async function and may return a value. The error is
// ErrLimit, ctx's error, or the script's own error with its stack. After an error, the Result has
// the output so far.
func Run(ctx context.Context, script string, o Options) (Result, error) {
	l := o.Limits.defaults()
	outer := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, l.Time, ErrLimit)
	defer cancel()
	s := &session{ctx: ctx, guard: o.Guard, tools: map[string]Tool{}, left: l, why: ErrLimit}
	for _, t := range o.Tools {
		s.tools[t.Name] = t
	}
	vm, err := image().Start(ctx, quickjs.Options{
		Step:  s.step,
		Grow:  func(n int64) bool { s.left.Memory -= n; return s.left.Memory >= 0 },
		Funcs: map[string]quickjs.Func{"print": s.print, "call": s.call},
	})
	if err != nil {
		return Result{}, err
	}
	defer vm.Close()
	value, err := run(vm, script)
	r := Result{Output: s.out.String()}
	switch {
	case outer.Err() != nil:
		return r, context.Cause(outer)
	case ctx.Err() != nil:
		return r, fmt.Errorf("%w: time", ErrLimit)
	case errors.Is(err, quickjs.ErrEnded):
		return r, s.why
	case err == nil && len(value) > l.Output:
		return r, fmt.Errorf("%w: the result has more than %d bytes", ErrLimit, l.Output)
	}
	r.Value = value
	return r, err
}

// session is one running script.
type session struct {
	ctx   context.Context
	tools map[string]Tool
	guard *Guard
	left  Limits // remaining limits, except Output, which is the full limit
	out   bytes.Buffer
	why   error // it is being ended
}

// step pays for work.
func (s *session) step(n int) bool {
	if s.left.Steps -= int64(n); s.left.Steps < 0 {
		s.why = fmt.Errorf("%w: steps", ErrLimit)
		return false
	}
	return true
}

// print implements the script's console.
func (s *session) print(vm *quickjs.VM, args []quickjs.Value) (any, error) {
	for i, a := range args {
		if i > 0 {
			s.out.WriteByte(' ')
		}
		s.out.WriteString(vm.String(a))
	}
	s.out.WriteByte('\n')
	if s.out.Len() > s.left.Output {
		s.out.Truncate(s.left.Output)
		s.why = fmt.Errorf("%w: output", ErrLimit)
		quickjs.End()
	}
	return nil, nil
}

// call calls a tool. args are its name, and its arguments as JSON.
func (s *session) call(vm *quickjs.VM, args []quickjs.Value) (any, error) {
	if len(args) != 2 {
		return nil, errors.New("a tool takes one object")
	}
	name, input := vm.String(args[0]), json.RawMessage(vm.String(args[1]))
	t, ok := s.tools[name]
	if !ok {
		return nil, fmt.Errorf("there is no tool %s", show(name))
	}
	if s.guard == nil {
		return nil, &Denied{Method: name, Reason: "there are no rules"}
	}
	if err := s.guard.Check(name, input); err != nil {
		return nil, err
	}
	answer, err := t.Call(s.ctx, input)
	if err != nil {
		return nil, err
	}
	if int64(len(answer)) > s.left.Memory {
		return nil, errors.New("the tool's answer is too large")
	}
	return string(answer), nil
}

// run runs the script and returns its value as JSON.
func run(vm *quickjs.VM, script string) (json.RawMessage, error) {
	// The prelude gets the script as a string and makes a function from it. So the script can't end
	// its own body early.
	text, err := vm.New(script)
	if err != nil {
		return nil, err
	}
	p, err := vm.Call(image().Result(), text)
	if err == nil {
		err = vm.Jobs()
	}
	if err != nil {
		return nil, err
	}
	state, v := vm.Promise(p)
	switch state {
	case 0:
		return nil, errors.New("the script waits for a promise that nothing will fulfil")
	case 2:
		return nil, errors.New(vm.String(v))
	}
	if vm.Nil(v) {
		return nil, nil
	}
	b := json.RawMessage(vm.String(v))
	if !json.Valid(b) {
		return nil, errors.New("the script's value is no JSON")
	}
	return b, nil
}
