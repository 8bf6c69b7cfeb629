package interp

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// hashEntry is a program that the shell has found before.
type hashEntry struct {
	path string
	hits int
}

// maxHashed is the most programs that are remembered.
const maxHashed = 512

// remembered finds a program. It looks in the table first.
func (r *runner) remembered(name string) string {
	path := r.str("PATH")
	if r.hashPath != path {
		r.hashed, r.hashPath = nil, path
	}
	if h, ok := r.hashed[name]; ok {
		if i, err := r.view.Stat(h.path); err == nil && i.Mode.IsRegular() {
			r.hashed[name] = hashEntry{h.path, h.hits + 1}
			return h.path
		}
		delete(r.hashed, name)
	}
	file := r.lookPath(name)
	if file != "" && r.opts.hashall && len(r.hashed) < maxHashed {
		if r.hashed == nil {
			r.hashed = map[string]hashEntry{}
		}
		r.hashed[name] = hashEntry{file, 1}
	}
	return file
}

// lookPath searches PATH for an executable file; "" when there is none.
func (r *runner) lookPath(name string) string {
	if name == "" || name == "." || name == ".." {
		return ""
	}
	for dir := range strings.SplitSeq(r.str("PATH"), ":") {
		if dir == "" {
			dir = "."
		}
		full := strings.TrimSuffix(r.abs(dir), "/") + "/" + name
		if i, err := r.view.Stat(full); err == nil && i.Mode.IsRegular() && r.view.Access(full, vfs.MayExec) == nil {
			return full
		}
	}
	return ""
}

// biHash shows and changes the table of programs.
func biHash(c *call) int {
	r := c.r
	args := c.args
	if !r.opts.hashall {
		return c.fail(1, "hashing disabled")
	}
	var o hashOptions
	cleared := false
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		a := args[0]
		args = args[1:]
		if a == "--" {
			break
		}
		for i := 1; i < len(a); i++ {
			switch a[i] {
			case 'r':
				r.hashed, cleared = nil, true
			case 'l':
				o.list = true
			case 't':
				o.show = true
			case 'd':
				o.forget = true
			case 'p':
				if o.file = a[i+1:]; o.file == "" {
					if len(args) == 0 {
						return c.fail(2, "-p: option requires an argument")
					}
					o.file, args = args[0], args[1:]
				}
				i = len(a)
			default:
				c.fail(2, "-%c: invalid option", a[i])
				r.writeErr("hash: usage: hash [-lr] [-p pathname] [-dt] [name ...]\n")
				return 2
			}
		}
	}
	if len(args) == 0 {
		if cleared {
			return 0
		}
		return c.hashTable(o.list)
	}
	status := 0
	for _, name := range args {
		if !c.hashName(name, o, len(args) > 1) {
			status = 1
		}
	}
	return status
}

// hashOptions are the options of hash that apply to names.
type hashOptions struct {
	list, show, forget bool
	file               string // of -p
}

// hashTable prints the remembered programs.
func (c *call) hashTable(list bool) int {
	r := c.r
	if len(r.hashed) == 0 {
		if list {
			return 0
		}
		return c.print("hash: hash table empty\n")
	}
	var b strings.Builder
	if !list {
		b.WriteString("hits\tcommand\n")
	}
	for _, name := range slices.Sorted(maps.Keys(r.hashed)) {
		h := r.hashed[name]
		if list {
			b.WriteString("builtin hash -p " + h.path + " " + name + "\n")
			continue
		}
		fmt.Fprintf(&b, "%4d\t%s\n", h.hits, h.path)
	}
	return c.print(b.String())
}

// hashName carries out hash for one name. When the name is not found, it writes a message and
// returns false.
func (c *call) hashName(name string, o hashOptions, several bool) bool {
	r := c.r
	h, known := r.hashed[name]
	switch {
	case o.show && known && o.list:
		c.print("builtin hash -p " + h.path + " " + name + "\n")
	case o.show && known:
		if several {
			c.print(name + "\t")
		}
		c.print(h.path + "\n")
	case o.forget && known:
		delete(r.hashed, name)
	case o.show, o.forget:
		c.fail(1, "%s: not found", name)
		return false
	case strings.Contains(name, "/"):
	default:
		found := o.file
		if found == "" {
			if _, ok := r.builtin(name); ok || r.funcs[name] != nil {
				return true
			}
			if found = r.lookPath(name); found == "" {
				delete(r.hashed, name)
				c.fail(1, "%s: not found", name)
				return false
			}
		}
		if r.hashed == nil {
			r.hashed = map[string]hashEntry{}
		}
		r.hashed[name], r.hashPath = hashEntry{found, 0}, r.str("PATH")
	}
	return true
}
