package archive

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// zipRun is one run of zip.
type zipRun struct {
	*tool.Call
	f       tool.Flags
	exclude []string
	include []string
	status  int
	added   map[string]pending
	order   []string
}

// zipMain is zip.
func zipMain(c *tool.Call) int {
	z := &zipRun{Call: c, added: map[string]pending{}}
	// -x and -i take all names up to the next option.
	var args []string
	for i := 0; i < len(c.Args); i++ {
		a := c.Args[i]
		into := &z.exclude
		switch {
		case a == "-i" || a == "--include":
			into = &z.include
		case a != "-x" && a != "--exclude":
			args = append(args, a)
			continue
		}
		for i+1 < len(c.Args) && !strings.HasPrefix(c.Args[i+1], "-") && c.Args[i+1] != "@" {
			i++
			*into = append(*into, c.Args[i])
		}
	}
	c.Args = args
	f, ok := c.Flags("rqdjumyoDXv@0123456789fFTZ:t:n:glkSAe", "recurse-paths=r", "quiet=q", "delete=d", "junk-paths=j", "update=u", "move=m", "symlinks=y",
		"latest-time=o", "no-dir-entries=D", "no-extra=X", "verbose=v", "names-stdin=@", "freshen=f", "test=T", "compression-method=Z", "store=0")
	if !ok {
		return 16
	}
	z.f = f
	if f.Has('e') {
		return c.Errorf(16, "this machine's zip does not encrypt")
	}
	if len(f.Args) == 0 {
		return c.Errorf(16, "nothing to do: no archive was named")
	}
	name := f.Args[0]
	names := f.Args[1:]
	if name != "-" && !strings.Contains(name[strings.LastIndexByte(name, '/')+1:], ".") {
		name += ".zip"
	}
	if f.Has('@') {
		_ = c.Lines(c.In, '\n', func(line []byte, _ bool) error { // what was read counts
			names = append(names, string(line))
			return c.Pay(int64(len(line)) + 64)
		})
	}
	old, err := z.old(name)
	if err != nil {
		fmt.Fprintf(c.Out, "\nzip error: Zip file structure invalid (%s)\n", name)
		return 3
	}
	if f.Has('d') {
		return z.delete(name, old, names)
	}
	if len(names) == 0 && name != "-" {
		fmt.Fprintf(c.Out, "\nzip error: Nothing to do! (%s)\n", name)
		return 12
	}
	z.gather(names)
	if len(z.order) == 0 {
		if len(names) > 0 {
			fmt.Fprintf(c.Out, "\nzip error: Nothing to do! (%s)\n", z.said(name, names))
			return 12
		}
	}
	return z.write(name, old)
}

func (z *zipRun) said(name string, _ []string) string { return name }

// old reads the existing archive.
func (z *zipRun) old(name string) (*zip.Reader, error) {
	if name == "-" {
		return nil, nil
	}
	data, err := readAll(z.Call, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err == zip.ErrInsecurePath {
		err = nil
	}
	return r, err
}

func readAll(c *tool.Call, name string) ([]byte, error) {
	in, err := c.OpenIn(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return c.ReadAll(in)
}

// wanted applies -x and -i.
func (z *zipRun) wanted(name string) bool {
	match := func(p string) bool { return wildMatch(p, name) }
	return !slices.ContainsFunc(z.exclude, match) && (len(z.include) == 0 || slices.ContainsFunc(z.include, match))
}

// gather finds the files to add.
func (z *zipRun) gather(names []string) {
	for _, n := range names {
		if n == "-" {
			z.add("-", pending{path: "-", name: "-"})
			continue
		}
		stack := []string{n}
		for len(stack) > 0 {
			if !z.Step(8) {
				return
			}
			path := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			look := z.FS().Stat
			if z.f.Has('y') {
				look = z.FS().Lstat
			}
			i, err := look(z.Abs(path))
			if err != nil {
				if !z.f.Has('q') {
					fmt.Fprintf(z.Out, "\tzip warning: name not matched: %s\n", path)
				}
				continue
			}
			inside := strings.TrimPrefix(strings.TrimLeft(path, "/"), "./")
			if i.Mode.IsDir() {
				inside = strings.TrimRight(inside, "/") + "/"
				if z.f.Has('r') {
					entries, err := z.FS().ReadDir(z.Abs(path))
					if err == nil && z.Pay(int64(len(entries))*128) == nil {
						for _, e := range slices.Backward(entries) {
							stack = append(stack, strings.TrimRight(path, "/")+"/"+e.Name)
						}
					}
				}
				if z.f.Has('D') || z.f.Has('j') || inside == "./" || inside == "/" {
					continue
				}
			}
			if z.f.Has('j') {
				inside = inside[strings.LastIndexByte(inside, '/')+1:]
			}
			if z.wanted(inside) {
				z.add(inside, pending{path: path, name: inside})
			}
		}
	}
}

func (z *zipRun) add(name string, p pending) {
	if _, ok := z.added[name]; !ok {
		z.order = append(z.order, name)
	}
	z.added[name] = p
}

// target opens a new file in the archive's directory. done renames it to the archive's name.
func (z *zipRun) target(name string) (out io.Writer, done func(ok bool) error, err error) {
	if name == "-" {
		return z.Out, func(bool) error { return nil }, nil
	}
	tmp := name + ".zip.tmp"
	f, err := z.Open(tmp, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
	if err != nil {
		return nil, nil, err
	}
	return f, func(ok bool) error {
		_ = f.Close() // written
		if !ok {
			return z.FS().Remove(z.Abs(tmp))
		}
		return z.FS().Rename(z.Abs(tmp), z.Abs(name))
	}, nil
}

// write writes the new archive: first the old members, with newer files in place of some, then the
// new members.
func (z *zipRun) write(name string, old *zip.Reader) int {
	out, done, err := z.target(name)
	if err != nil {
		return z.Errorf(15, "error: Could not create output file (%s)", name)
	}
	w := zip.NewWriter(out)
	say := func(verb, name, how string) {
		if !z.f.Has('q') && out != z.Out {
			fmt.Fprintf(z.Out, "%s: %s (%s)\n", verb, name, how)
		}
	}
	seen := map[string]bool{}
	var moved []string
	put := func(verb string, p pending) error {
		seen[p.name] = true
		how, err := z.put(w, p)
		if err == nil {
			say(verb, p.name, how)
			moved = append(moved, p.path)
		}
		return err
	}
	if old != nil {
		for _, e := range old.File {
			p, replace := z.added[e.Name]
			if replace && (z.f.Has('u') || z.f.Has('f')) {
				if i, serr := z.FS().Stat(z.Abs(p.path)); serr == nil && !i.Modified.Truncate(2*time.Second).After(e.Modified) {
					replace, seen[e.Name] = false, true
				}
			}
			if replace {
				err = put("updating", p)
			} else {
				err = w.Copy(e)
			}
			if err != nil {
				break
			}
		}
	}
	for _, n := range z.order {
		if err != nil {
			break
		}
		if !seen[n] && !z.f.Has('f') {
			err = put("  adding", z.added[n])
		}
	}
	if err == nil {
		err = w.Close()
	}
	if derr := done(err == nil); err == nil {
		err = derr
	}
	if err != nil {
		if z.Stopped(err) {
			return 1
		}
		return z.Errorf(14, "error: %s", tool.ErrText(err))
	}
	if z.f.Has('m') {
		for _, p := range slices.Backward(moved) {
			_ = z.FS().Remove(z.Abs(p)) // a directory that is not empty stays
		}
	}
	return z.status
}

// put adds one file.
func (z *zipRun) put(w *zip.Writer, p pending) (how string, err error) {
	if p.path == "-" {
		o, err := w.CreateHeader(&zip.FileHeader{Name: "-", Method: zip.Deflate, Modified: z.Now()})
		if err == nil {
			_, err = copyAll(z.Call, o, z.In)
		}
		return "deflated", err
	}
	look := z.FS().Stat
	if z.f.Has('y') {
		look = z.FS().Lstat
	}
	i, err := look(z.Abs(p.path))
	if err != nil {
		return "", err
	}
	h := &zip.FileHeader{Name: p.name, Modified: i.Modified}
	h.SetMode(i.Mode)
	switch {
	case i.Mode.IsDir():
		_, err = w.CreateHeader(h)
		return "stored 0%", err
	case i.Mode&fs.ModeSymlink != 0:
		o, err := w.CreateHeader(h)
		if err == nil {
			_, err = io.WriteString(o, i.Target)
		}
		return "stored 0%", err
	}
	in, err := z.Open(p.path, vfs.ReadOnly, 0)
	if err != nil {
		return "", err
	}
	defer in.Close()
	// Compression can make small files larger. Those are stored, as in zip.
	if z.f.Last("0123456789") != '0' && i.Size > 0 {
		h.Method = zip.Deflate
		if i.Size < 4<<20 {
			data, err := z.ReadAll(in)
			if err != nil {
				return "", err
			}
			defer func() { _ = z.Pay(-int64(len(data))) }()
			n, err := deflated(data)
			if err != nil {
				return "", err
			}
			if n >= len(data) {
				h.Method = zip.Store
			}
			o, err := w.CreateHeader(h)
			if err == nil {
				_, err = copyAll(z.Call, o, bytes.NewReader(data))
			}
			if h.Method == zip.Store {
				return "stored 0%", err
			}
			return fmt.Sprintf("deflated %d%%", percent(int64(n), int64(len(data)))), err
		}
	}
	o, err := w.CreateHeader(h)
	if err == nil {
		_, err = copyAll(z.Call, o, in)
	}
	if h.Method == zip.Store {
		return "stored 0%", err
	}
	return "deflated", err
}

// percent returns the percentage that compression has saved.
func percent(small, big int64) int64 {
	if big == 0 {
		return 0
	}
	return ((big-small)*200/big + 1) / 2
}

// delete takes members out.
func (z *zipRun) delete(name string, old *zip.Reader, names []string) int {
	if old == nil {
		fmt.Fprintf(z.Out, "\nzip error: Nothing to do! (%s)\n", name)
		return 12
	}
	out, done, err := z.target(name)
	if err != nil {
		return z.Errorf(15, "error: Could not create output file (%s)", name)
	}
	w := zip.NewWriter(out)
	kept, gone := 0, 0
	for _, e := range old.File {
		if slices.ContainsFunc(names, func(p string) bool { return wildMatch(p, e.Name) }) {
			gone++
			if !z.f.Has('q') {
				fmt.Fprintf(z.Out, "deleting: %s\n", e.Name)
			}
			continue
		}
		kept++
		if err = w.Copy(e); err != nil {
			break
		}
	}
	if err == nil {
		err = w.Close()
	}
	if derr := done(err == nil && gone > 0 && kept > 0); err == nil {
		err = derr
	}
	switch {
	case err != nil:
		return z.Errorf(14, "error: %s", tool.ErrText(err))
	case gone == 0:
		fmt.Fprintf(z.Out, "\nzip error: Nothing to do! (%s)\n", name)
		return 12
	case kept == 0:
		if !z.f.Has('q') {
			fmt.Fprintf(z.Out, "\tzip warning: zip file empty\n")
		}
		_ = z.FS().Remove(z.Abs(name)) // an empty archive is none
	}
	return 0
}
