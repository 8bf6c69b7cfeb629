package sh

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

// hashEntry is a program that was found before.
type hashEntry struct {
	path string
	hits int
}

// maxHashed is how many programs are remembered.
const maxHashed = 512

// remembered finds a program, in the table first.
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
	var list, show, forget, cleared bool
	file := ""
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
				list = true
			case 't':
				show = true
			case 'd':
				forget = true
			case 'p':
				if file = a[i+1:]; file == "" {
					if len(args) == 0 {
						return c.fail(2, "-p: option requires an argument")
					}
					file, args = args[0], args[1:]
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
	status := 0
	for _, a := range args {
		h, known := r.hashed[a]
		switch {
		case show && known && list:
			c.print("builtin hash -p " + h.path + " " + a + "\n")
		case show:
			if !known {
				status = c.fail(1, "%s: not found", a)
				continue
			}
			if len(args) > 1 {
				c.print(a + "\t")
			}
			c.print(h.path + "\n")
		case forget:
			if !known {
				status = c.fail(1, "%s: not found", a)
			}
			delete(r.hashed, a)
		case strings.Contains(a, "/"):
		default:
			found := file
			if found == "" {
				if _, ok := r.builtin(a); ok || r.funcs[a] != nil {
					continue
				}
				if found = r.lookPath(a); found == "" {
					delete(r.hashed, a)
					status = c.fail(1, "%s: not found", a)
					continue
				}
			}
			if r.hashed == nil {
				r.hashed = map[string]hashEntry{}
			}
			r.hashed[a], r.hashPath = hashEntry{found, 0}, r.str("PATH")
		}
	}
	return status
}
