package sh

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

// toolTable lists the programs of the machine. It is a function, called once,
// because its entries lead back to it.
func toolTable() map[string]command {
	return map[string]command{
		"bash": toolShell, "sh": toolShell,
		"true": biTrue, "false": biFalse, "echo": biEcho, "printf": biPrintf, "test": biTest, "[": biTest, "pwd": biPwd, "kill": biKill,
		"stty":         toolStty,
		"carrel-guest": toolGuest,
	}
}

// Install puts the tools, also those named in commands (see Config.Commands), the devices and the directories of a small
// Linux into an empty filesystem.
func Install(f *vfs.FS, commands ...string) error {
	v := f.Root()
	for _, d := range []string{"/bin", "/usr/local/bin", "/etc", "/dev", "/proc", "/root", "/home", "/var/log", "/var/tmp", "/run", "/opt", "/mnt", "/srv"} {
		if d == "/bin" {
			if err := errors.Join(v.MkdirAll("/usr/bin", 0o755), v.Symlink("usr/bin", "/bin"), v.Symlink("bin", "/usr/sbin"), v.Symlink("usr/bin", "/sbin")); err != nil {
				return err
			}
			continue
		}
		if err := v.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if err := errors.Join(v.Mkdir("/tmp", fs.ModeSticky|0o777), v.Chmod("/var/tmp", fs.ModeSticky|0o777), v.Chmod("/root", 0o700),
		v.Device("/dev/null", "null"), v.Device("/dev/zero", "zero"), v.Device("/dev/full", "full"),
		v.Device("/dev/random", "random"), v.Device("/dev/urandom", "random"), v.Symlink("/proc/self/fd", "/dev/fd")); err != nil {
		return err
	}
	for name, text := range etcFiles {
		if err := v.WriteFile("/etc/"+name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(toolTable())), commands) {
		if err := v.WriteFile("/usr/bin/"+name, []byte(magic+name+"\n"), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(v.Remove("/usr/bin/sh"), v.Symlink("bash", "/usr/bin/sh"), installProc(f))
}

// Stub is what a file contains that leads to one of the machine's programs.
func Stub(name string) []byte { return []byte(magic + name + "\n") }

var etcFiles = map[string]string{
	"passwd":     "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
	"group":      "root:x:0:\nnogroup:x:65534:\n",
	"os-release": "PRETTY_NAME=\"Carrel (simulated)\"\nNAME=\"Carrel\"\nID=carrel\nHOME_URL=\"https://example.com/\"\n",
	"shells":     "/bin/sh\n/bin/bash\n",
	"hosts":      "127.0.0.1\tlocalhost\n::1\tlocalhost\n",
}

// complain writes "name: message" and returns status.
func (c *call) complain(status int, format string, args ...any) int {
	c.r.writeErr(base(c.name) + ": " + fmt.Sprintf(format, args...) + "\n")
	return status
}

func base(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// flags are a tool's parsed options.
type flags struct {
	on   map[byte]bool
	val  map[byte]string
	args []string
}

func (f flags) has(l byte) bool { return f.on[l] }

// flags parses options: letters of spec, those followed by ':' with a value. long
// names stand for letters as "name=l". ok is false when a message was written.
func (c *call) flags(spec string, long ...string) (f flags, ok bool) {
	f = flags{on: map[byte]bool{}, val: map[byte]string{}}
	rest := c.args
	for len(rest) > 0 {
		a := rest[0]
		switch {
		case a == "--":
			f.args = append(f.args, rest[1:]...)
			return f, true
		case strings.HasPrefix(a, "--"):
			name, value, has := strings.Cut(a[2:], "=")
			l := byte(0)
			for _, n := range long {
				if ln, lt, _ := strings.Cut(n, "="); ln == name {
					l = lt[0]
				}
			}
			if l == 0 {
				c.complain(2, "unrecognized option '%s'", a)
				return f, false
			}
			f.on[l] = true
			if strings.Contains(spec, string(l)+":") && !has {
				if len(rest) < 2 {
					c.complain(2, "option '%s' requires an argument", a)
					return f, false
				}
				value, rest = rest[1], rest[1:]
			}
			f.val[l] = value
		case len(a) > 1 && a[0] == '-':
			for i := 1; i < len(a); i++ {
				at := strings.IndexByte(spec, a[i])
				if at < 0 || a[i] == ':' {
					c.complain(2, "invalid option -- '%c'", a[i])
					return f, false
				}
				f.on[a[i]] = true
				if at+1 < len(spec) && spec[at+1] == ':' {
					value := a[i+1:]
					if value == "" {
						if len(rest) < 2 {
							c.complain(2, "option requires an argument -- '%c'", a[i])
							return f, false
						}
						value, rest = rest[1], rest[1:]
					}
					f.val[a[i]] = value
					break
				}
			}
		default:
			f.args = append(f.args, a)
		}
		rest = rest[1:]
	}
	return f, true
}

// input is one open input of a tool.
type input struct {
	io.Reader
	d *desc
}

func (i input) Close() error {
	if i.d != nil {
		i.d.drop()
	}
	return nil
}

// openIn opens a file for reading; "-" is standard input.
func (c *call) openIn(name string) (input, error) {
	if name == "-" {
		return input{Reader: c.in}, nil
	}
	d, err := c.r.openFile(name, vfs.ReadOnly)
	if err != nil {
		return input{}, err
	}
	return input{fdReader{c.r.ctx, d}, d}, nil
}

// eachInput calls fn with every named input, or standard input when there is
// none. It returns 1 when one could not be opened or fn failed.
func (c *call) eachInput(names []string, fn func(name string, in io.Reader) error) int {
	if len(names) == 0 {
		names = []string{"-"}
	}
	status := 0
	for _, n := range names {
		in, err := c.openIn(n)
		if err == nil {
			err = fn(n, in)
			_ = in.Close()
		}
		if err != nil {
			if c.r.ctx.Err() != nil || errors.Is(err, errStop) {
				return status
			}
			status = c.complain(1, "%s: %s", n, errText(err))
		}
	}
	return status
}

// errStop ends eachInput and eachLine early.
var errStop = errors.New("stop")

// maxLine is the longest line a tool takes.
const maxLine = 64 << 20

// eachLine calls fn with every line, without its newline. The slice is only valid
// during the call.
func (c *call) eachLine(in io.Reader, fn func(line []byte) error) error {
	br := bufio.NewReaderSize(in, 32<<10)
	var long []byte
	for {
		part, err := br.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			c.r.pay(len(part))
			long = append(long, part...)
			if len(long) > maxLine || c.r.flow != flowNone {
				return errors.New("line too long")
			}
			continue
		}
		line := part
		if long != nil {
			line = append(long, part...)
			long = nil
		}
		if err != nil && (err != io.EOF || len(line) == 0) {
			if err == io.EOF {
				return nil
			}
			return err
		}
		if n := len(line); n > 0 && line[n-1] == '\n' {
			line = line[:n-1]
		}
		if !c.r.step() {
			return errStop
		}
		if ferr := fn(line); ferr != nil {
			return ferr
		}
		if err == io.EOF {
			return nil
		}
	}
}

// buffered returns a buffered output; the caller flushes it.
func (c *call) buffered() *bufio.Writer { return bufio.NewWriterSize(c.out, 32<<10) }

// AddUser adds a user and a group of the same name and number, with a home directory.
func AddUser(f *vfs.FS, name string, id uint32) error {
	v := f.Root()
	add := func(file, line string) error {
		have, err := v.ReadFile(file)
		if err != nil {
			return err
		}
		return v.WriteFile(file, append(have, line...), 0o644)
	}
	home := "/home/" + name
	return errors.Join(add("/etc/passwd", fmt.Sprintf("%s:x:%d:%d:%s:%s:/bin/bash\n", name, id, id, name, home)),
		add("/etc/group", fmt.Sprintf("%s:x:%d:\n", name, id)), v.MkdirAll(home, 0o755), v.Chown(home, id, id))
}
