package sh

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

// finder is one run of find.
type finder struct {
	c        *call
	min, max int
	tests    []func(i vfs.Info, p string) bool
	action   func(i vfs.Info, p string) bool
	status   int
}

func toolFind(c *call) int {
	args := c.args
	var roots []string
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") && args[0] != "!" && args[0] != "(" {
		roots, args = append(roots, args[0]), args[1:]
	}
	if len(roots) == 0 {
		roots = []string{"."}
	}
	w := c.buffered()
	fd := &finder{c: c, max: 1 << 20}
	fd.action = func(_ vfs.Info, p string) bool { io.WriteString(w, p+"\n"); return true }
	if err := fd.parse(args, w); err != nil {
		return c.complain(1, "%s", err)
	}
	for _, root := range roots {
		var later []func()
		err := c.walk(root, true, func(i vfs.Info, p string, depth int) (bool, error) {
			if depth >= fd.min {
				ok := true
				for _, t := range fd.tests {
					if ok = t(i, p); !ok {
						break
					}
				}
				if ok {
					if fd.min < 0 { // deleting: children first
						later = append(later, func() { fd.action(i, p) })
					} else {
						fd.action(i, p)
					}
				}
			}
			return depth < fd.max, nil
		})
		for k := len(later) - 1; k >= 0; k-- {
			later[k]()
		}
		if err != nil {
			fd.status = c.complain(1, "'%s': %s", root, errText(err))
		}
	}
	if w.Flush() != nil {
		return 1
	}
	return fd.status
}

func (fd *finder) parse(args []string, w io.Writer) error {
	not := false
	test := func(t func(i vfs.Info, p string) bool) {
		if not {
			inner := t
			t = func(i vfs.Info, p string) bool { return !inner(i, p) }
		}
		fd.tests = append(fd.tests, t)
		not = false
	}
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		value := ""
		switch a {
		case "-name", "-iname", "-path", "-type", "-maxdepth", "-mindepth", "-size", "-newer", "-mtime", "-user", "-perm", "-regex":
			if len(args) == 0 {
				return fmt.Errorf("missing argument to `%s'", a)
			}
			value, args = args[0], args[1:]
		}
		switch a {
		case "!", "-not":
			not = true
		case "-a", "-and":
		case "-name":
			test(func(i vfs.Info, p string) bool { return fd.c.r.match(value, base(strings.TrimSuffix(p, "/"))) })
		case "-iname":
			test(func(i vfs.Info, p string) bool {
				return fd.c.r.match(strings.ToLower(value), strings.ToLower(base(p)))
			})
		case "-path":
			test(func(i vfs.Info, p string) bool { return fd.c.r.match(value, p) })
		case "-type":
			test(func(i vfs.Info, p string) bool {
				return strings.Contains(value, map[byte]string{'-': "f", 'd': "d", 'l': "l", 'c': "c"}[modeText(i.Mode)[0]])
			})
		case "-empty":
			test(func(i vfs.Info, p string) bool {
				if i.Mode.IsDir() {
					es, err := fd.c.r.view.ReadDir(fd.c.r.abs(p))
					return err == nil && len(es) == 0
				}
				return i.Mode.IsRegular() && i.Size == 0
			})
		case "-maxdepth", "-mindepth":
			n, err := strconv.Atoi(value)
			if err != nil {
				return fmt.Errorf("expected a number after %s", a)
			}
			if a == "-maxdepth" {
				fd.max = n
			} else {
				fd.min = n
			}
		case "-newer":
			ref, err := fd.c.stat(value)
			if err != nil {
				return fmt.Errorf("'%s': %s", value, errText(err))
			}
			test(func(i vfs.Info, p string) bool { return i.Modified.After(ref.Modified) })
		case "-size":
			sign := value[:boolStatus(value != "" && value[0] != '+' && value[0] != '-')]
			body := strings.TrimLeft(value, "+-")
			unit := int64(512)
			if n := len(body); n > 0 {
				if u, ok := map[byte]int64{'c': 1, 'k': 1 << 10, 'M': 1 << 20, 'G': 1 << 30, 'b': 512}[body[n-1]]; ok {
					unit, body = u, body[:n-1]
				}
			}
			n, err := strconv.ParseInt(body, 10, 64)
			if err != nil {
				return fmt.Errorf("invalid -size `%s'", value)
			}
			test(func(i vfs.Info, p string) bool {
				got := (i.Size + unit - 1) / unit
				return sign == "+" && got > n || sign == "-" && got < n || sign == "" && got == n
			})
		case "-print":
		case "-print0":
			fd.action = func(_ vfs.Info, p string) bool { io.WriteString(w, p+"\x00"); return true }
		case "-delete":
			fd.min = -1
			fd.action = func(_ vfs.Info, p string) bool {
				if err := fd.c.r.view.Remove(fd.c.r.abs(p)); err != nil {
					fd.status = fd.c.complain(1, "cannot delete '%s': %s", p, errText(err))
				}
				return true
			}
		case "-exec":
			end := 0
			for end < len(args) && args[end] != ";" && args[end] != "+" {
				end++
			}
			if end == len(args) || end == 0 {
				return errors.New("missing argument to `-exec'")
			}
			fd.exec(args[:end], w)
			args = args[end+1:]
		default:
			return fmt.Errorf("unknown predicate `%s'", a)
		}
	}
	return nil
}

// exec makes running a program the action; {} stands for the path.
func (fd *finder) exec(argv []string, w io.Writer) {
	fd.action = func(_ vfs.Info, p string) bool {
		full := make([]string, len(argv))
		for i, a := range argv {
			full[i] = strings.ReplaceAll(a, "{}", p)
		}
		if f, ok := w.(interface{ Flush() error }); ok {
			_ = f.Flush() // its own failure shows at the end
		}
		return fd.c.sub(full, fd.c.env) == 0
	}
}

func toolDu(c *call) int {
	f, ok := c.flags("shkacbd:", "summarize=s", "human-readable=h", "max-depth=d", "bytes=b")
	if !ok {
		return 1
	}
	names := f.args
	if len(names) == 0 {
		names = []string{"."}
	}
	return c.on(names, "cannot access '%s': %s", func(full string) error {
		var total int64
		if err := c.walk(full, true, func(i vfs.Info, _ string, _ int) (bool, error) {
			total += i.Used + 512
			return true, nil
		}); err != nil {
			return err
		}
		text := strconv.FormatInt((total+1023)/1024, 10)
		switch {
		case f.has('h'):
			text = humanSize(total)
		case f.has('b'):
			text = strconv.FormatInt(total, 10)
		}
		name := full
		for _, n := range names {
			if c.r.abs(n) == full {
				name = n
			}
		}
		c.print(text + "\t" + name + "\n")
		return nil
	})
}

func toolDf(c *call) int {
	used, quota := c.r.m.fs.Usage()
	pct := int64(0)
	if quota > 0 {
		pct = (used*100 + quota - 1) / quota
	}
	if len(c.args) > 0 && strings.Contains(c.args[0], "h") {
		return c.print(fmt.Sprintf("Filesystem      Size  Used Avail Use%% Mounted on\nmemory          %4s  %4s  %4s  %2d%% /\n",
			humanSize(quota), humanSize(used), humanSize(max(quota-used, 0)), pct))
	}
	return c.print(fmt.Sprintf("Filesystem     1K-blocks    Used Available Use%% Mounted on\nmemory         %9d %7d %9d %3d%% /\n",
		quota>>10, used>>10, max(quota-used, 0)>>10, pct))
}
