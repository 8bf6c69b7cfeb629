package script

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"

	experimentalsys "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/sys"

	"github.com/carrel-dev/carrel/shell/tool"
)

// door is a file below /.carrel. Python writes a request to it and reads the answer from it. It
// exists for one interpreter only. Through it a hostile script can do no more than the shell can.
type door struct {
	experimentalsys.UnimplementedFile
	r      *pythonRun
	serve  func(r *pythonRun, request []byte) any
	in     bytes.Buffer
	out    *bytes.Reader
	answer bool
}

// doorFuncs are the doors by name.
var doorFuncs = map[string]func(r *pythonRun, request []byte) any{"run": (*pythonRun).doRun, "http": (*pythonRun).doHTTP, "which": (*pythonRun).doWhich, "chmod": (*pythonRun).doChmod}

// openDoor opens one of these files. It returns nil when there is none with that name.
func openDoor(r *pythonRun, name string) experimentalsys.File {
	if name == "python" {
		return &door{r: r, out: bytes.NewReader([]byte(r.boot)), answer: true}
	}
	if f := doorFuncs[name]; f != nil {
		return &door{r: r, serve: f}
	}
	return nil
}

// Stat implements File.
func (d *door) Stat() (sys.Stat_t, experimentalsys.Errno) {
	return sys.Stat_t{Dev: 2, Ino: 1, Mode: fs.ModeCharDevice | fs.ModeDevice | 0o600, Nlink: 1}, 0
}

// Ino implements File.
func (d *door) Ino() (sys.Inode, experimentalsys.Errno) { return 1, 0 }

// Write implements File.
func (d *door) Write(b []byte) (int, experimentalsys.Errno) {
	if d.answer || d.in.Len()+len(b) > maxRead {
		return 0, experimentalsys.EINVAL
	}
	n, _ := d.in.Write(b) // never fails
	return n, 0
}

// Seek implements File.
func (d *door) Seek(offset, int) (int64, experimentalsys.Errno) { return 0, 0 }

// Read implements File.
func (d *door) Read(b []byte) (int, experimentalsys.Errno) {
	if !d.answer {
		d.answer = true
		text, err := json.Marshal(d.serve(d.r, d.in.Bytes()))
		if err != nil {
			return 0, experimentalsys.EIO
		}
		d.out = bytes.NewReader(text)
	}
	n, err := d.out.Read(b)
	if err != nil && err != io.EOF {
		return n, experimentalsys.EIO
	}
	return n, 0
}

// Sync implements File.
func (d *door) Sync() experimentalsys.Errno { return 0 }

// Close implements File.
func (d *door) Close() experimentalsys.Errno { return 0 }

// doRun runs another program.
func (r *pythonRun) doRun(request []byte) any {
	var q struct {
		Argv, Env []string
		Dir       string
		Input     *[]byte
		Out, Err  string
	}
	type reply struct {
		Status int    `json:"status"`
		PID    int    `json:"pid"`
		Out    []byte `json:"out"`
		Err    []byte `json:"err"`
	}
	if err := json.Unmarshal(request, &q); err != nil || len(q.Argv) == 0 {
		return reply{Status: 126}
	}
	n := &node{c: r.c}
	out, errs := &capped{n: n, most: maxRead}, &capped{n: n, most: maxRead}
	c := tool.Child{Args: q.Argv, Env: q.Env, Dir: q.Dir, Out: r.c.Out, Err: r.c.Err}
	if c.Env == nil {
		c.Env = []string{}
	}
	if q.Input != nil {
		c.In = bytes.NewReader(*q.Input)
	}
	if q.Out != "inherit" {
		c.Out = out
	}
	switch q.Err {
	case "merge":
		c.Err = c.Out
	case "pipe":
		c.Err = errs
	}
	p, err := r.c.Start(c)
	if err != nil {
		return reply{Status: 126}
	}
	status, sig := p.Wait()
	_ = r.c.Pay(-int64(out.b.Len() + errs.b.Len()))
	if sig != 0 {
		status = -sig
	}
	return reply{Status: status, PID: p.PID(), Out: out.b.Bytes(), Err: errs.b.Bytes()}
}

// doWhich reports whether a program can be run.
func (r *pythonRun) doWhich(request []byte) any {
	var q struct{ Name, Dir string }
	_ = json.Unmarshal(request, &q) // an empty name is not found
	n := &node{c: r.c, dir: q.Dir}
	return map[string]bool{"found": n.runs(q.Name)}
}

// doChmod changes permission bits, which WASI can't.
func (r *pythonRun) doChmod(request []byte) any {
	var q struct {
		Path string
		Mode int64
	}
	if err := json.Unmarshal(request, &q); err != nil {
		return map[string]string{"error": "EINVAL"}
	}
	if err := fail(r.c.FS().Chmod(q.Path, goMode(q.Mode))); err != nil {
		return map[string]string{"error": err.Error()}
	}
	return map[string]string{}
}

// doHTTP sends a request.
func (r *pythonRun) doHTTP(request []byte) any {
	var q struct {
		Method, URL string
		Headers     [][2]string
		Body        *[]byte
	}
	type reply struct {
		Error   string      `json:"error,omitempty"`
		Status  int         `json:"status"`
		Reason  string      `json:"reason"`
		Headers [][2]string `json:"headers"`
		Body    []byte      `json:"body"`
	}
	if err := json.Unmarshal(request, &q); err != nil {
		return reply{Error: "not a request"}
	}
	way := r.c.HTTP()
	if way == nil {
		return reply{Error: "there is no network here"}
	}
	req := &tool.Request{Method: q.Method, URL: q.URL, Header: map[string][]string{}}
	for _, h := range q.Headers {
		req.Header[h[0]] = append(req.Header[h[0]], h[1])
	}
	if q.Body != nil {
		req.Body, req.Length = bytes.NewReader(*q.Body), int64(len(*q.Body))
	}
	resp, err := way.Do(r.c.Ctx, req)
	if err != nil {
		return reply{Error: err.Error()}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil || len(body) > maxAnswer {
		return reply{Error: "the answer could not be read"}
	}
	out := reply{Status: resp.Status, Reason: resp.Reason, Body: body}
	for k, vs := range resp.Header {
		for _, v := range vs {
			out.Headers = append(out.Headers, [2]string{k, v})
		}
	}
	return out
}
