package system

import (
	"errors"
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// without returns an environment without some variables.
func without(env []string, names ...string) []string {
	out := make([]string, 0, len(env)+2)
next:
	for _, kv := range env {
		for _, n := range names {
			if strings.HasPrefix(kv, n+"=") {
				continue next
			}
		}
		out = append(out, kv)
	}
	return out
}

// setenv sets a variable. A variable that exists keeps its place.
func setenv(env []string, kv string) []string {
	name, _, _ := strings.Cut(kv, "=")
	out := append([]string{}, env...)
	for i, old := range out {
		if strings.HasPrefix(old, name+"=") {
			out[i] = kv
			return out
		}
	}
	return append(out, kv)
}

func env(c *tool.Call) int {
	args := c.Args
	for i := 0; i < len(args) && i < 64; i++ { // the words of -S replace it, before all other arguments
		a := args[i]
		at := strings.Index(a, "S")
		var text string
		n := 1
		switch {
		case strings.HasPrefix(a, "--split-string="):
			text = a[len("--split-string="):]
		case (a == "-S" || a == "--split-string") && i+1 < len(args):
			text, n = args[i+1], 2
		case len(a) > 1 && a[0] == '-' && a[1] != '-' && at > 0 && strings.Trim(a[1:at], "iv0") == "":
			if text = a[at+1:]; text == "" && i+1 < len(args) {
				text, n = args[i+1], 2
			}
			if at > 1 {
				text = a[:at] + " " + text
			}
		case a == "-u" || a == "-C" || a == "--unset" || a == "--chdir":
			i++
			continue
		case strings.HasPrefix(a, "-"):
			continue
		}
		if text != "" || n == 2 {
			words, err := splitString(text, c.Getenv)
			if err != nil {
				return c.Errorf(125, "%v", err)
			}
			args = append(append(append([]string{}, args[:i]...), words...), args[i+n:]...)
			i--
			continue
		}
		break
	}
	c.Args = args
	f, ok := c.Flags("+iu:C:v0\x81::", "ignore-environment=i", "unset=u", "chdir=C", "debug=v", "null=0", "block-signal=\x81::", "default-signal=\x81::", "ignore-signal=\x81::", "list-signal-handling=\x82")
	if !ok {
		return 125
	}
	vars := c.Environ()
	if f.Has('i') || len(f.Args) > 0 && f.Args[0] == "-" {
		vars = nil
		if len(f.Args) > 0 && f.Args[0] == "-" {
			f.Args = f.Args[1:]
		}
	}
	for _, name := range f.Values('u') {
		if name == "" || strings.Contains(name, "=") {
			return c.Errorf(125, "cannot unset ‘%s’: Invalid argument", name)
		}
		vars = without(vars, name)
	}
	rest := f.Args
	for len(rest) > 0 && strings.Contains(rest[0], "=") {
		vars = setenv(vars, rest[0])
		rest = rest[1:]
	}
	dir := ""
	if f.Has('C') {
		if len(rest) == 0 {
			c.Errorf(125, "must specify command with --chdir (-C)")
			return usage.Try(c, 125)
		}
		dir = c.Abs(f.Value('C', ""))
		if i, err := c.FS().Stat(dir); err != nil || !i.Mode.IsDir() {
			text := "Not a directory"
			if err != nil {
				text = tool.ErrText(err)
			}
			return c.Errorf(125, "cannot change directory to '%s': %s", f.Value('C', ""), text)
		}
	}
	if len(rest) == 0 {
		end := "\n"
		if f.Has('0') {
			end = "\x00"
		}
		var b strings.Builder
		for _, kv := range vars {
			b.WriteString(kv + end)
		}
		return show(c, b.String())
	}
	if f.Has('0') {
		c.Errorf(125, "cannot specify --null (-0) with command")
		return usage.Try(c, 125)
	}
	if vars == nil {
		vars = []string{}
	}
	if status, found := lookup(c, rest[0], vars); !found {
		text := "No such file or directory"
		if status == 126 {
			text = "Permission denied"
		}
		return c.Errorf(status, "‘%s’: %s", rest[0], text)
	}
	return c.Run(tool.Child{Args: rest, Env: vars, Dir: dir})
}

// lookup reports whether a program can be found. If not, it returns the exit status for that.
func lookup(c *tool.Call, name string, vars []string) (int, bool) {
	if strings.Contains(name, "/") {
		if _, err := c.FS().Stat(c.Abs(name)); err != nil {
			return 127, false
		}
		return 0, true
	}
	path := "/bin:/usr/bin"
	for _, kv := range vars {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	if find(c, name, path, false) == nil {
		return 127, false
	}
	return 0, true
}

// find searches for a program in a search path.
func find(c *tool.Call, name, path string, all bool) (out []string) {
	for dir := range strings.SplitSeq(path, ":") {
		if dir == "" {
			dir = "."
		}
		file := strings.TrimSuffix(dir, "/") + "/" + name
		i, err := c.FS().Stat(c.Abs(file))
		if err != nil || !i.Mode.IsRegular() || c.FS().Access(c.Abs(file), vfs.MayExec) != nil {
			continue
		}
		if out = append(out, file); !all {
			break
		}
	}
	return out
}

// splitString reads the words of -S: quotes, backslashes, ${NAME}.
func splitString(s string, getenv func(string) string) (out []string, err error) {
	var b strings.Builder
	has, quote := false, byte(0)
	for i := 0; i < len(s); i++ {
		ch := s[i]
		switch {
		case quote == '\'' && ch != '\'':
			if ch == '\\' && i+1 < len(s) && (s[i+1] == '\'' || s[i+1] == '\\') {
				i++
				ch = s[i]
			}
			b.WriteByte(ch)
		case quote != 0 && ch == quote:
			quote = 0
		case ch == '\\' && i+1 < len(s):
			i++
			switch s[i] {
			case '_':
				if quote != 0 {
					b.WriteByte(' ')
				} else if has {
					out = append(out, b.String())
					b.Reset()
					has = false
				}
				continue
			case 'c':
				i = len(s)
				continue
			case 'f', 'n', 'r', 't', 'v':
				b.WriteByte(map[byte]byte{'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v'}[s[i]])
			case '#', '$', '"', '\'', '\\':
				b.WriteByte(s[i])
			default:
				return nil, fmt.Errorf("invalid sequence '\\%c' in -S", s[i])
			}
			has = true
		case ch == '\\':
			return nil, errors.New("invalid backslash at end of string in -S")
		case ch == '$':
			end := strings.IndexByte(s[i:], '}')
			if i+1 >= len(s) || s[i+1] != '{' || end < 0 {
				return nil, fmt.Errorf("only ${VARNAME} expansion is supported, error at: %s", s[i:])
			}
			b.WriteString(getenv(s[i+2 : i+end]))
			i += end
			has = true
		case quote == 0 && (ch == '\'' || ch == '"'):
			quote, has = ch, true
		case quote == 0 && (ch == ' ' || ch >= '\t' && ch <= '\r'):
			if has {
				out = append(out, b.String())
				b.Reset()
				has = false
			}
		case quote == 0 && ch == '#' && !has:
			i = len(s)
		default:
			b.WriteByte(ch)
			has = true
		}
	}
	if quote != 0 {
		return nil, errors.New("no terminating quote in -S string")
	}
	if has {
		out = append(out, b.String())
	}
	return out, nil
}

func printenv(c *tool.Call) int {
	f, ok := c.Flags("+0", "null=0")
	if !ok {
		return 2
	}
	end := "\n"
	if f.Has('0') {
		end = "\x00"
	}
	var b strings.Builder
	if len(f.Args) == 0 {
		for _, kv := range c.Environ() {
			b.WriteString(kv + end)
		}
		return show(c, b.String())
	}
	status := 0
	for _, name := range f.Args {
		found := false
		for _, kv := range c.Environ() {
			if v, ok := strings.CutPrefix(kv, name+"="); ok && !strings.Contains(name, "=") {
				b.WriteString(v + end)
				found = true
			}
		}
		if !found {
			status = 1
		}
	}
	return max(show(c, b.String()), status)
}
