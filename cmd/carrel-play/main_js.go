package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall/js"
	"time"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// session is the state of a page: a disk, and saved moments of it.
type session struct {
	disk    *vfs.FS
	moments []*vfs.FS
}

// main gives the page its functions and does not return.
//
//	carrel.run(script, onStdout, onStderr) → Promise of {code, message, ms}
//	carrel.snapshot() → number     carrel.rollback(number)     carrel.reset()
//	carrel.files() → [{path, size, dir}]     carrel.read(path) → text     carrel.write(path, text)
func main() {
	s := &session{}
	if err := s.reset(); err != nil {
		panic(err)
	}
	js.Global().Set("carrel", js.ValueOf(map[string]any{
		"run": js.FuncOf(s.run),
		"snapshot": js.FuncOf(func(js.Value, []js.Value) any {
			s.moments = append(s.moments, clone(s.disk))
			return len(s.moments) - 1
		}),
		"rollback": js.FuncOf(func(_ js.Value, args []js.Value) any { return answer(s.rollback(args)) }),
		"reset":    js.FuncOf(func(js.Value, []js.Value) any { return answer(s.reset()) }),
		"files":    js.FuncOf(func(js.Value, []js.Value) any { return s.files() }),
		"read":     js.FuncOf(s.read),
		"write":    js.FuncOf(func(_ js.Value, args []js.Value) any { return answer(s.write(args)) }),
	}))
	if ready := js.Global().Get("carrelReady"); ready.Type() == js.TypeFunction {
		ready.Invoke()
	}
	select {}
}

// answer returns the text of an error, or null.
func answer(err error) any {
	if err != nil {
		return err.Error()
	}
	return nil
}

func clone(f *vfs.FS) *vfs.FS { return f.Clone(vfs.Options{Quota: diskSize}) }

func (s *session) reset() error {
	begin, err := newDisk()
	if err != nil {
		return err
	}
	s.disk, s.moments = clone(begin), nil
	return nil
}

func (s *session) rollback(args []js.Value) error {
	if len(args) != 1 || args[0].Type() != js.TypeNumber || args[0].Int() < 0 || args[0].Int() >= len(s.moments) {
		return errors.New("there is no such moment")
	}
	s.disk = clone(s.moments[args[0].Int()])
	return nil
}

// output sends a stream to the page, in whole characters.
type output struct {
	to   js.Value
	rest []byte
}

func (o *output) Write(b []byte) (int, error) {
	o.rest = append(o.rest, b...)
	whole := len(o.rest)
	for back := 1; back <= 3 && back <= len(o.rest); back++ { // a character may continue in the next write
		if c := o.rest[len(o.rest)-back]; c >= 0xc0 {
			whole = len(o.rest) - back
			if need := map[bool]int{true: 2, false: 3}[c < 0xe0]; back >= need && (c < 0xf0 || back >= 4) {
				whole = len(o.rest)
			}
			break
		}
	}
	if o.to.Type() == js.TypeFunction && whole > 0 {
		o.to.Invoke(strings.ToValidUTF8(string(o.rest[:whole]), "\uFFFD"))
	}
	o.rest = append([]byte(nil), o.rest[whole:]...)
	return len(b), nil
}

// run runs a script and returns a promise.
func (s *session) run(_ js.Value, args []js.Value) any {
	script := ""
	var stdout, stderr output
	if len(args) > 0 {
		script = args[0].String()
	}
	if len(args) > 2 {
		stdout.to, stderr.to = args[1], args[2]
	}
	return js.Global().Get("Promise").New(js.FuncOf(func(_ js.Value, p []js.Value) any {
		resolve, reject := p[0], p[1]
		go func() {
			began := time.Now()
			e, err := runScript(s.disk, script, nil, nil, &stdout, &stderr)
			if err != nil {
				reject.Invoke(err.Error())
				return
			}
			resolve.Invoke(js.ValueOf(map[string]any{"code": e.Code, "message": e.Message, "ms": float64(time.Since(began).Microseconds()) / 1000}))
		}()
		return nil
	}))
}

// files lists the home directory and everything below it.
func (s *session) files() any {
	list := []any{}
	todo := []string{"/home/" + userName}
	for len(todo) > 0 && len(list) < 1000 {
		dir := todo[0]
		todo = todo[1:]
		infos, _ := s.disk.Root().ReadDir(dir) // what vanished is not listed
		for _, i := range infos {
			path := dir + "/" + i.Name
			if i.Mode.IsDir() {
				todo = append(todo, path)
			}
			list = append(list, map[string]any{"path": path, "size": i.Size, "dir": i.Mode.IsDir(), "link": i.Mode&fs.ModeSymlink != 0})
		}
	}
	return js.ValueOf(list)
}

func (s *session) read(_ js.Value, args []js.Value) any {
	if len(args) != 1 {
		return nil
	}
	b, err := s.disk.Root().ReadFile(args[0].String())
	if err != nil {
		return nil
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

func (s *session) write(args []js.Value) error {
	if len(args) != 2 {
		return fmt.Errorf("write(path, text) has two arguments")
	}
	return s.disk.As(vfs.Cred{UID: userID, GID: userID}).WriteFile(args[0].String(), []byte(args[1].String()), 0o644)
}
