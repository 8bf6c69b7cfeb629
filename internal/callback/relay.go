package callback

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/carrel-dev/carrel"
)

// Gone is the exit status of a call whose provider has gone or broke the protocol. It is the status
// of a program that can't be run.
const Gone = 126

// Call is the provider's information about a call, besides the streams.
type Call struct {
	Name string   `json:"name"`
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
	User string   `json:"user"`
}

// About describes a call.
func About(c *carrel.ProgramCall) Call {
	return Call{Name: c.Name, Args: c.Args, Env: c.Env, Dir: c.Dir, User: c.User}
}

// maxCall bounds a call's description: twice the greatest size of a command line and an
// environment.
const maxCall = 4 << 20

// Send begins a connection with the description of the call. Relay continues.
func Send(conn io.Writer, c Call) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if len(b) > maxCall {
		return errors.New("argument list too long")
	}
	return (&stream{w: conn}).write('c', b)
}

// Receive reads the description that Send has written, and nothing after it. Answer continues.
func Receive(conn io.Reader) (c Call, err error) {
	kind, size, err := head(conn)
	if err != nil {
		return c, err
	}
	if kind != 'c' || size > maxCall {
		return c, errTurn
	}
	b, err := body(conn, size)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	return c, err
}

// Relay serves a call over a connection to its provider, and returns the exit status. The end of
// ctx ends the call. The caller closes the connection.
func Relay(ctx context.Context, conn io.ReadWriteCloser, c *carrel.ProgramCall) int {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	s := newStream(conn)
	for {
		kind, data, err := s.read()
		if err == nil {
			var status int
			var done bool
			if status, done, err = serve(s, c, kind, data); done {
				return status
			}
		}
		if err != nil {
			if ctx.Err() == nil {
				fmt.Fprintf(c.Stderr, "%s: who provides it has gone: %v\n", c.Name, err)
			}
			return Gone
		}
	}
}

// serve answers one frame.
func serve(s *stream, c *carrel.ProgramCall, kind byte, data []byte) (status int, done bool, err error) {
	switch kind {
	case 'o', 'e':
		to := c.Stdout
		if kind == 'e' {
			to = c.Stderr
		}
		if _, err := to.Write(data); err != nil { // nobody reads, so end it like a broken pipe
			return 128 + 13, true, nil
		}
		return 0, false, nil
	case 'r':
		n, ok := number(data)
		if !ok || n == 0 {
			return 0, false, errTurn
		}
		b := make([]byte, min(n, maxChunk))
		got, err := c.Stdin.Read(b)
		if got == 0 && err != nil {
			return 0, false, s.write('i', nil)
		}
		return 0, false, s.write('i', b[:got])
	case 'f':
		var q fileRequest
		if err := json.Unmarshal(data, &q); err != nil {
			return 0, false, errTurn
		}
		b, err := json.Marshal(q.do(c.Files))
		if err != nil {
			return 0, false, err
		}
		return 0, false, s.write('F', b)
	case 'x':
		n, ok := number(data)
		if !ok {
			return 0, false, errTurn
		}
		return int(n & 0xff), true, nil
	}
	return 0, false, errTurn
}

// fileRequest is a request about a file.
type fileRequest struct {
	Op   string      `json:"op"`
	Name string      `json:"name"`
	To   string      `json:"to,omitempty"`
	Data []byte      `json:"data,omitempty"`
	Perm fs.FileMode `json:"perm,omitempty"`
}

// fileAnswer is the answer to a fileRequest.
type fileAnswer struct {
	Error string     `json:"error,omitempty"`
	Kind  string     `json:"kind,omitempty"` // for an error: the fs error that it matches
	Data  []byte     `json:"data,omitempty"`
	Infos []fileInfo `json:"infos,omitempty"`
}

// fileInfo is an fs.FileInfo in JSON.
type fileInfo struct {
	N string      `json:"name"`
	S int64       `json:"size"`
	M fs.FileMode `json:"mode"`
	T time.Time   `json:"time"`
}

func (f fileInfo) Name() string       { return f.N }
func (f fileInfo) Size() int64        { return f.S }
func (f fileInfo) Mode() fs.FileMode  { return f.M }
func (f fileInfo) ModTime() time.Time { return f.T }
func (f fileInfo) IsDir() bool        { return f.M.IsDir() }
func (f fileInfo) Sys() any           { return nil }

// kinds are the errors that keep their kind over the connection.
var kinds = map[string]error{"missing": fs.ErrNotExist, "exists": fs.ErrExist, "denied": fs.ErrPermission}

// do does what is asked for.
func (q fileRequest) do(files carrel.ProgramFiles) (a fileAnswer) {
	var err error
	add := func(i fs.FileInfo) {
		a.Infos = append(a.Infos, fileInfo{i.Name(), i.Size(), i.Mode(), i.ModTime()})
	}
	switch q.Op {
	case "read":
		var i fs.FileInfo
		if i, err = files.Stat(q.Name); err == nil && i.Size() > maxFrame/2 {
			err = errors.New("the file is too large")
		}
		if err == nil {
			a.Data, err = files.ReadFile(q.Name)
		}
	case "write":
		err = files.WriteFile(q.Name, q.Data, q.Perm)
	case "stat":
		var i fs.FileInfo
		if i, err = files.Stat(q.Name); err == nil {
			add(i)
		}
	case "list":
		var all []fs.FileInfo
		all, err = files.ReadDir(q.Name)
		for _, i := range all {
			add(i)
		}
	case "mkdir":
		err = files.MkdirAll(q.Name, q.Perm)
	case "remove":
		err = files.Remove(q.Name)
	case "rename":
		err = files.Rename(q.Name, q.To)
	default:
		err = errors.New("no such operation")
	}
	if err != nil {
		a = fileAnswer{Error: err.Error()}
		for kind, is := range kinds {
			if errors.Is(err, is) {
				a.Kind = kind
			}
		}
	}
	return a
}
