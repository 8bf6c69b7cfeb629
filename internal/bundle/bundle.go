// Package bundle moves files from one filesystem into another one, as the instruction COPY does: it
// selects files of a [Tree] by paths and wildcards, writes them into a tar stream, and unpacks such
// a stream into the filesystem of a sandbox.
//
// The daemon selects files of a build's context and of images. The guest, as "carrel-guest bundle",
// selects files inside a sandbox and unpacks streams there. So names are always resolved where the
// files are, and a link in a sandbox can't lead to a file of the host.
package bundle

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
)

// Tree is a filesystem to select from. Names are relative to its root, which is ".". Links are not
// followed by a Tree. Open is called for regular files only.
type Tree interface {
	Lstat(name string) (image.File, error)
	List(name string) ([]string, error)
	Open(name string) (io.ReadCloser, error)
}

// Selection says which files to take. Paths may have the wildcards of a Dockerfile.
type Selection struct {
	Paths   []string `json:"paths"`
	Exclude []string `json:"exclude,omitempty"` // patterns, relative to the root
	// Parents keeps the directories above each file.
	Parents bool `json:"parents,omitempty"`
	// Follow takes the target of a link that a path names. Links below are always kept as links.
	Follow bool `json:"follow,omitempty"`
	// Whole takes each path with its own name and everything below it, under its full name.
	Whole bool `json:"whole,omitempty"`
}

// Packed describes a stream.
type Packed struct {
	Entries int `json:"entries"`
	// Single says that the stream holds one file, which may get another name.
	Single bool   `json:"single,omitempty"`
	Sum    string `json:"sum"` // of names, modes and contents
	Bytes  int64  `json:"bytes"`
}

// Bounds of one stream.
const (
	MaxEntries = 2_000_000
	MaxBytes   = 64 << 30
	maxHops    = 40
	maxDepth   = 512
)

// Pack writes the selected files to w. With a nil w it only sums them. The error for a path that
// nothing matches is NotFound.
func Pack(ctx context.Context, w io.Writer, t Tree, sel Selection) (Packed, error) {
	p := &packer{ctx: ctx, tree: t, sel: sel, sum: sha256.New()}
	if w != nil {
		p.out = tar.NewWriter(w)
	}
	sources := 0
	for _, given := range sel.Paths {
		found, err := p.match(given)
		if err != nil {
			return Packed{}, err
		}
		for _, name := range found {
			sources++
			if err := p.source(name); err != nil {
				return Packed{}, err
			}
		}
	}
	p.packed.Single = sources == 1 && p.files == 1 && !p.sawDir
	p.packed.Sum = hex.EncodeToString(p.sum.Sum(nil))
	if p.out != nil {
		return p.packed, p.out.Close()
	}
	return p.packed, nil
}

// packer is one run of Pack.
type packer struct {
	ctx    context.Context
	tree   Tree
	sel    Selection
	out    *tar.Writer // nil to sum only
	sum    hash.Hash
	packed Packed
	files  int
	sawDir bool
}

// clean makes a path relative to the root.
func clean(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		return "."
	}
	return name
}

// match returns the names that a path means, sorted.
func (p *packer) match(given string) ([]string, error) {
	found := []string{"."}
	for _, part := range strings.Split(clean(given), "/") {
		if part == "." {
			continue
		}
		var next []string
		for _, dir := range found {
			dir, info, err := p.resolve(dir, true)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				continue
			case err != nil:
				return nil, err
			case !info.Mode.IsDir():
				continue
			}
			if !strings.ContainsAny(part, `*?[\`) {
				next = append(next, path.Join(dir, part))
				continue
			}
			names, err := p.tree.List(dir)
			if err != nil {
				return nil, err
			}
			for _, n := range names {
				ok, err := path.Match(part, n)
				if err != nil {
					return nil, invalid("the pattern %q is malformed", given)
				}
				if ok {
					next = append(next, path.Join(dir, n))
				}
			}
		}
		found = next
	}
	var out []string
	for _, name := range found {
		if _, _, err := p.resolve(name, false); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		if p.excluded(name) {
			continue
		}
		out = append(out, name)
	}
	if len(out) == 0 {
		return nil, &carrel.Error{Kind: carrel.NotFound,
			Err: fmt.Errorf("%q: there is no such file", given)}
	}
	slices.Sort(out)
	return out, nil
}

// resolve follows the links on the way to a name, and with last also one at its end. It never
// leaves the tree.
func (p *packer) resolve(name string, last bool) (string, image.File, error) {
	todo := strings.Split(clean(name), "/")
	at := "."
	for hops := 0; ; {
		if len(todo) == 0 {
			info, err := p.tree.Lstat(at)
			return at, info, err
		}
		next := path.Join(at, todo[0])
		if todo[0] == ".." {
			next = path.Dir(at)
		}
		todo = todo[1:]
		info, err := p.tree.Lstat(next)
		if err != nil {
			return next, info, err
		}
		if info.Mode&fs.ModeSymlink == 0 || len(todo) == 0 && !last {
			at = next
			continue
		}
		if hops++; hops > maxHops {
			return next, info, invalid("%s: too many links on the way", name)
		}
		if path.IsAbs(info.Target) {
			at = "."
		}
		var parts []string
		for _, s := range strings.Split(info.Target, "/") {
			if s != "" && s != "." {
				parts = append(parts, s)
			}
		}
		todo = append(parts, todo...)
	}
}

// source writes what one path means.
func (p *packer) source(name string) error {
	real, info, err := p.resolve(name, p.sel.Follow)
	if err != nil {
		return err
	}
	to := path.Base(name)
	if p.sel.Parents || p.sel.Whole {
		to = name
	}
	if !info.Mode.IsDir() {
		p.files++
		return p.entry(real, to, info)
	}
	p.sawDir = true
	if !p.sel.Parents && !p.sel.Whole {
		to = "."
	}
	if p.sel.Whole {
		if err := p.entry(real, to, info); err != nil {
			return err
		}
	}
	return p.below(real, to, 0)
}

// below writes everything in a directory.
func (p *packer) below(dir, to string, depth int) error {
	if depth > maxDepth {
		return invalid("%s: more than %d directories deep", dir, maxDepth)
	}
	names, err := p.tree.List(dir)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, n := range names {
		name := path.Join(dir, n)
		info, err := p.tree.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if p.excluded(name) {
			continue
		}
		if err := p.entry(name, path.Join(to, n), info); err != nil {
			return err
		}
		if info.Mode.IsDir() {
			if err := p.below(name, path.Join(to, n), depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// excluded reports whether a pattern of the selection excludes a name.
func (p *packer) excluded(name string) bool {
	for _, pattern := range p.sel.Exclude {
		if matchDeep(strings.Split(clean(pattern), "/"), strings.Split(name, "/")) {
			return true
		}
	}
	return false
}

// matchDeep matches a name, where "**" stands for any number of directories.
func matchDeep(pattern, name []string) bool {
	switch {
	case len(pattern) == 0:
		return len(name) == 0
	case pattern[0] == "**":
		for i := range len(name) + 1 {
			if matchDeep(pattern[1:], name[i:]) {
				return true
			}
		}
		return false
	case len(name) == 0:
		return false
	}
	ok, err := path.Match(pattern[0], name[0])
	return ok && err == nil && matchDeep(pattern[1:], name[1:])
}

// entry writes one file. Sockets and devices are left out.
func (p *packer) entry(name, to string, info image.File) error {
	if err := p.ctx.Err(); err != nil {
		return context.Cause(p.ctx)
	}
	h := &tar.Header{Name: to, Mode: int64(Bits(info.Mode)), Uid: int(info.UID), Gid: int(info.GID),
		ModTime: info.Modified, Format: tar.FormatPAX}
	switch {
	case info.Mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, to+"/"
	case info.Mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Linkname = tar.TypeSymlink, info.Target
	case info.Mode.IsRegular():
		h.Typeflag, h.Size = tar.TypeReg, info.Size
	default:
		return nil
	}
	p.packed.Entries++
	p.packed.Bytes += h.Size
	if p.packed.Entries > MaxEntries || p.packed.Bytes > MaxBytes {
		return &carrel.Error{Kind: carrel.Exhausted,
			Err: fmt.Errorf("more than %d files or %d GiB are copied", MaxEntries, MaxBytes>>30)}
	}
	fmt.Fprintf(p.sum, "%q %c %o %q %d\n", h.Name, h.Typeflag, h.Mode, h.Linkname, h.Size)
	if p.out != nil {
		if err := p.out.WriteHeader(h); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if h.Typeflag != tar.TypeReg || h.Size == 0 {
		return nil
	}
	f, err := p.tree.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	var w io.Writer = p.sum
	if p.out != nil {
		w = io.MultiWriter(p.sum, p.out)
	}
	n, err := io.Copy(w, io.LimitReader(f, h.Size))
	if err == nil && n < h.Size {
		err = fmt.Errorf("%s: %w", name, io.ErrUnexpectedEOF)
	}
	return err
}

// Bits returns the permission bits of a mode as Unix has them.
func Bits(m fs.FileMode) uint32 {
	out := uint32(m.Perm())
	if m&fs.ModeSetuid != 0 {
		out |= 0o4000
	}
	if m&fs.ModeSetgid != 0 {
		out |= 0o2000
	}
	if m&fs.ModeSticky != 0 {
		out |= 0o1000
	}
	return out
}

// NewMode returns the permission bits that a text gives to a file: octal, or as chmod has it
// ("u+x,go=r").
func NewMode(text string, old uint32, dir bool) (uint32, error) {
	if text == "" {
		return old, nil
	}
	if n, err := strconv.ParseUint(text, 8, 32); err == nil && n <= 0o7777 {
		return uint32(n), nil
	}
	for _, clause := range strings.Split(text, ",") {
		at := strings.IndexAny(clause, "+-=")
		if at < 0 {
			return 0, invalid("%q is no mode", text)
		}
		who := strings.ReplaceAll(clause[:at], "a", "ugo")
		if who == "" {
			who = "ugo"
		}
		var bits, mask uint32
		for _, w := range who {
			shift, ok := map[rune]uint32{'u': 6, 'g': 3, 'o': 0}[w]
			if !ok {
				return 0, invalid("%q is no mode", text)
			}
			mask |= 7 << shift
			for _, r := range clause[at+1:] {
				b, ok := map[rune]uint32{'r': 4, 'w': 2, 'x': 1, 'X': 0}[r]
				if !ok {
					return 0, invalid("%q is no mode", text)
				}
				if r == 'X' && (dir || old&0o111 != 0) {
					b = 1
				}
				bits |= b << shift
			}
		}
		switch clause[at] {
		case '+':
			old |= bits
		case '-':
			old &^= bits
		default:
			old = old&^mask | bits
		}
	}
	return old, nil
}

func invalid(format string, args ...any) error {
	return &carrel.Error{Kind: carrel.Invalid, Err: fmt.Errorf(format, args...)}
}
