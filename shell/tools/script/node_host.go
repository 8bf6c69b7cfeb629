package script

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io/fs"
	"strings"
	"syscall"

	"golang.org/x/net/idna"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/script/quickjs"
)

// hostFuncs are the functions that the library can call in the machine. Scripts can't name them,
// but the library passes arguments of scripts to them. So every argument is hostile.
var hostFuncs map[string]func(n *node, a in) (any, error)

func init() { // in init, because one of the methods uses the table
	one := func(fn func(n *node, name string) error) func(*node, in) (any, error) {
		return func(n *node, a in) (any, error) { return nil, fail(fn(n, n.path(a.str(0)))) }
	}
	hostFuncs = map[string]func(n *node, a in) (any, error){
		"open": (*node).open, "close": (*node).close, "read": (*node).read, "readAll": (*node).readAll, "readFile": (*node).readFile,
		"writeFile": (*node).writeFile, "write": (*node).write, "pwrite": (*node).pwrite, "stat": (*node).stat, "fstat": (*node).fstat,
		"ftruncate": (*node).ftruncate, "readdir": (*node).readdir, "mkdir": (*node).mkdir, "access": (*node).access, "chdir": (*node).chdir,
		"truncate": (*node).truncate,
		"rmdir":    one(func(n *node, p string) error { return n.removeOne(p, true) }),
		"unlink":   one(func(n *node, p string) error { return n.removeOne(p, false) }),
		"rm":       one(func(n *node, p string) error { return n.c.FS().RemoveAll(p) }),
		"rename": func(n *node, a in) (any, error) {
			return nil, fail(n.c.FS().Rename(n.path(a.str(0)), n.path(a.str(1))))
		},
		"link": func(n *node, a in) (any, error) { return nil, fail(n.c.FS().Link(n.path(a.str(0)), n.path(a.str(1)))) },
		"symlink": func(n *node, a in) (any, error) {
			return nil, fail(n.c.FS().Symlink(a.str(0), n.path(a.str(1))))
		},
		"readlink": func(n *node, a in) (any, error) {
			s, err := n.c.FS().Readlink(n.path(a.str(0)))
			return s, fail(err)
		},
		"realpath": func(n *node, a in) (any, error) {
			s, err := n.c.FS().EvalSymlinks(n.path(a.str(0)))
			return s, fail(err)
		},
		"chmod": func(n *node, a in) (any, error) {
			return nil, fail(n.c.FS().Chmod(n.path(a.str(0)), goMode(a.num(1))))
		},
		"chown": func(n *node, a in) (any, error) {
			return nil, fail(n.c.FS().Chown(n.path(a.str(0)), uint32(a.num(1)), uint32(a.num(2))))
		},
		"utimes": func(n *node, a in) (any, error) {
			return nil, fail(n.c.FS().Chtimes(n.path(a.str(0)), millis(a.float(1))))
		},
		"cwd":    func(n *node, _ in) (any, error) { return n.dir, nil },
		"hrtime": func(n *node, _ in) (any, error) { return float64(n.c.Now().Sub(n.c.Machine().Started())), nil },
		"memory": func(n *node, _ in) (any, error) { return n.spent + int64(image().Size()), nil },
		"random": func(n *node, a in) (any, error) {
			size := a.num(0)
			if size < 0 || size > maxRead {
				return nil, failure("EINVAL")
			}
			b := make([]byte, size)
			n.c.Random(b)
			return b, nil
		},
		"tty": func(n *node, a in) (any, error) {
			cols, rows, ok := n.c.Terminal(int(a.num(0)))
			if !ok {
				return nil, nil
			}
			return []any{cols, rows}, nil
		},
		"exit": func(n *node, a in) (any, error) {
			n.status, n.exited = int(a.num(0))&0xff, true
			quickjs.End()
			return nil, nil
		},
		"kill": func(n *node, a in) (any, error) {
			n.flush()
			return nil, fail(n.c.Machine().Kill(int(a.num(0)), int(a.num(1)), n.c.UID()))
		},
		"jobs":    func(n *node, _ in) (any, error) { return n.vm.Pending(), nil },
		"compile": (*node).compile, "text": (*node).text, "bytes": (*node).encode,
		"promise": func(n *node, a in) (any, error) {
			if len(a.args) == 0 {
				return []any{-1, nil}, nil
			}
			state, result := a.vm.Promise(a.args[0])
			if state <= 0 {
				return []any{state, nil}, nil
			}
			return []any{state, result}, nil
		},
		"proxy": func(n *node, a in) (any, error) {
			if len(a.args) > 0 {
				if t, ok := a.vm.ProxyTarget(a.args[0]); ok {
					return []any{true, t}, nil
				}
			}
			return []any{false, nil}, nil
		},
		"idna": func(_ *node, a in) (any, error) {
			s, err := idna.Lookup.ToASCII(a.str(0))
			if err != nil {
				return nil, nil
			}
			return s, nil
		},
		"hashNew": (*node).hashNew, "hashUpdate": (*node).hashUpdate, "hashSum": (*node).hashSum, "pbkdf2": (*node).pbkdf2,
		"crc32": func(_ *node, a in) (any, error) {
			return int64(crc32.Update(uint32(a.num(1)), crc32.IEEETable, a.bytes(0))), nil
		},
		"zlib": (*node).zlib, "run": (*node).child, "which": (*node).which,
		"httpStart": (*node).httpStart, "poll": (*node).httpPoll,
		"tool": func(*node, in) (any, error) { return nil, errors.New("no tools are granted") },
	}
}

// goMode converts Linux's mode bits to a file mode.
func goMode(bits int64) fs.FileMode {
	m := fs.FileMode(bits & 0o777)
	for bit, to := range map[int64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			m |= to
		}
	}
	return m
}

// compile runs source text in the global scope and returns its value, which is usually a function.
func (n *node) compile(a in) (any, error) {
	source, file, mode := a.str(0), a.str(1), quickjs.Script
	if a.str(2) == "module" {
		mode = quickjs.Module
	}
	return a.vm.Eval(source, file, mode)
}

// text makes a string of bytes.
func (n *node) text(a in) (any, error) {
	b := a.bytes(0)
	switch a.str(1) {
	case "utf8":
		return string(b), nil
	case "hex":
		return hex.EncodeToString(b), nil
	case "base64":
		return base64.StdEncoding.EncodeToString(b), nil
	case "base64url":
		return base64.RawURLEncoding.EncodeToString(b), nil
	case "latin1", "ascii":
		mask := byte(0xff)
		if a.str(1) == "ascii" {
			mask = 0x7f
		}
		out := make([]rune, len(b))
		for i, c := range b {
			out[i] = rune(c & mask)
		}
		return string(out), nil
	}
	return nil, failure("EINVAL")
}

// encode converts a string to bytes, as leniently as node does.
func (n *node) encode(a in) (any, error) {
	s := a.str(0)
	switch a.str(1) {
	case "utf8":
		return []byte(s), nil
	case "hex":
		end := 0
		for end+1 < len(s) && isHex(s[end]) && isHex(s[end+1]) {
			end += 2
		}
		return hex.DecodeString(s[:end])
	case "base64", "base64url":
		s = strings.NewReplacer("-", "+", "_", "/").Replace(s)
		if i := strings.IndexByte(s, '='); i >= 0 {
			s = s[:i]
		}
		s = strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '+' || r == '/' {
				return r
			}
			return -1
		}, s)
		if len(s)%4 == 1 {
			s = s[:len(s)-1]
		}
		return base64.RawStdEncoding.DecodeString(s)
	case "latin1", "ascii":
		out := make([]byte, 0, len(s))
		for _, r := range s {
			if r > 0xffff {
				out = append(out, byte((r-0x10000)>>10), byte(r))
				continue
			}
			out = append(out, byte(r))
		}
		return out, nil
	}
	return nil, failure("EINVAL")
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

// which reports whether a program can be run.
func (n *node) which(a in) (any, error) {
	return n.runs(a.str(0)), nil
}

// runs reports whether the shell would find a program.
func (n *node) runs(name string) bool {
	runs := func(p string) bool {
		i, err := n.c.FS().Stat(p)
		return err == nil && !i.Mode.IsDir() && n.c.FS().Access(p, 1) == nil
	}
	if strings.Contains(name, "/") {
		return runs(n.path(name))
	}
	for dir := range strings.SplitSeq(n.c.Getenv("PATH"), ":") {
		if dir != "" && runs(dir+"/"+name) {
			return true
		}
	}
	for _, have := range n.c.Machine().Commands() {
		if have == name {
			return true
		}
	}
	return false
}

// capped stores the output of a child, up to a limit.
type capped struct {
	n    *node
	b    bytes.Buffer
	most int64
}

// Write implements io.Writer.
func (c *capped) Write(p []byte) (int, error) {
	if int64(c.b.Len()+len(p)) > c.most {
		return 0, syscall.EPIPE
	}
	if c.n.c.Pay(int64(len(p))) != nil {
		return 0, syscall.ENOMEM
	}
	return c.b.Write(p)
}

// child runs another program to its end. Its arguments are: the program's arguments, its
// environment, its directory, its input (null for the script's own), the destination of its output
// and of its errors (pipe, inherit, ignore), and the most bytes to store.
func (n *node) child(a in) (any, error) {
	n.flush()
	argv, env := n.strings(a, 0), n.strings(a, 1)
	if len(argv) == 0 {
		return nil, failure("EINVAL")
	}
	c := tool.Child{Args: argv, Env: env, Dir: n.dir}
	if d := a.str(2); d != "" {
		c.Dir = n.path(d)
	}
	if a.has(3) {
		c.In = bytes.NewReader(a.bytes(3))
	}
	most := min(max(a.num(6), 0), maxRead)
	keep := func(i int) (*capped, bool) { return &capped{n: n, most: most}, a.str(i) != "inherit" }
	out, outKept := keep(4)
	errs, errKept := keep(5)
	if outKept {
		c.Out = out
	}
	if errKept {
		c.Err = errs
	}
	if c.Out == nil {
		c.Out = n.c.Out
	}
	if c.Err == nil {
		c.Err = n.c.Err
	}
	p, err := n.c.Start(c)
	if err != nil {
		return nil, failure("EAGAIN")
	}
	status, sig := p.Wait()
	_ = n.c.Pay(-int64(out.b.Len() + errs.b.Len()))
	return []any{status, sig, out.b.Bytes(), errs.b.Bytes()}, nil
}

// strings reads an array of strings.
func (n *node) strings(a in, i int) []string {
	if i >= len(a.args) {
		return nil
	}
	const most = 100_000
	size := a.vm.Int(a.vm.Get(a.args[i], "length"))
	var out []string
	for j := range min(max(size, 0), most) {
		v := a.vm.At(a.args[i], int(j))
		out = append(out, a.vm.String(v))
		a.vm.Free(v)
	}
	return out
}
