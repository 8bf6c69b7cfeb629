package files

import (
	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// follow says which symbolic links a walk follows.
type follow int

const (
	followNone     follow = iota // -P
	followOperands               // -H
	followAll                    // -L
)

// visit is one file that a walk has reached.
type visit struct {
	path  string // its path for messages, which begins with the operand
	info  vfs.Info
	depth int
	post  bool  // second visit of a directory, after all below it
	err   error // Lstat or Stat failed, or with dir, reading the directory failed
	dir   bool  // err is about reading the directory
	loop  bool  // a link to one of its own parent directories
}

// What a visitor wants next.
type next int

const (
	goOn next = iota
	skip      // don't descend
	stop      // end the walk
)

// frame is a directory that is being read.
type frame struct {
	v       visit
	entries []vfs.Info
	at      int
}

// costEntry is the memory for one entry of a directory during the walk.
const costEntry = 256

// walk visits a file and everything below it. It visits a directory before its entries, and with
// post after them.
func walk(c *tool.Call, name string, links follow, fn func(visit) next) {
	var stack []frame
	info, err := lstat(c, name)
	if err == nil && links != followNone && isLink(info.Mode) {
		if i, serr := statOf(c, name); serr == nil {
			info = i
		}
	}
	v := visit{path: name, info: info, err: err}
	for {
		if !c.Step(4) {
			return
		}
		if v.err == nil && links == followAll && info.Mode.IsDir() && looped(stack, info) {
			v.loop = true
		}
		n := fn(v)
		if n == stop {
			return
		}
		if v.err == nil && v.info.Mode.IsDir() && n == goOn && !v.loop {
			entries, derr := c.FS().ReadDir(c.Abs(v.path))
			if derr != nil {
				v.err, v.dir = derr, true
				if fn(v) == stop {
					return
				}
				v.err, v.dir = nil, false
			}
			if c.Pay(int64(len(entries))*costEntry) != nil {
				return
			}
			stack = append(stack, frame{v: v, entries: entries})
		}
		for {
			if len(stack) == 0 {
				return
			}
			top := &stack[len(stack)-1]
			if top.at < len(top.entries) {
				info = top.entries[top.at]
				top.at++
				v = visit{path: under(top.v.path, info.Name), info: info, depth: top.v.depth + 1}
				if links == followAll && isLink(info.Mode) {
					if i, serr := statOf(c, v.path); serr == nil {
						name := info.Name
						info = i
						info.Name = name
						v.info = info
					} else if !notExist(serr) {
						v.err = serr
					}
				}
				break
			}
			done := top.v
			_ = c.Pay(-int64(len(top.entries)) * costEntry)
			stack = stack[:len(stack)-1]
			done.post = true
			if fn(done) == stop {
				return
			}
		}
	}
}

// looped reports whether a directory is already being read further up.
func looped(stack []frame, i vfs.Info) bool {
	for _, f := range stack {
		if f.v.info.Ino == i.Ino {
			return true
		}
	}
	return false
}
