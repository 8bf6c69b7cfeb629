package build

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build/plan"
	"github.com/carrel-dev/carrel/internal/bundle"
	"github.com/carrel-dev/carrel/internal/image"
)

// A mount of a RUN is made of files: what lies at its target is packed away, the mount's own files
// take its place, and after the command everything is as before. So a build needs no right to mount
// anything in its sandbox, and no file of a mount is in the layer.

// mount makes the mounts of a command. unmount undoes them; kept says that the command succeeded,
// so that caches are kept.
func (r *run) mount(ctx context.Context, w *workshop, all []plan.Mount,
	env map[string]string) (unmount func(ctx context.Context, kept bool) error, err error) {
	var undo []func(ctx context.Context, kept bool) error
	unmount = func(ctx context.Context, kept bool) error {
		var errs []error
		for i := len(undo) - 1; i >= 0; i-- {
			errs = append(errs, undo[i](ctx, kept))
		}
		return errors.Join(errs...)
	}
	for _, m := range all {
		if m.Kind == plan.MountSecret {
			value, ok := r.j.secrets[m.ID]
			if !ok && m.Required {
				return unmount, &carrel.Error{Kind: carrel.NotFound,
					Err:  fmt.Errorf("the secret %.100q was not given", m.ID),
					Hint: "give it: --secret id=" + m.ID + ",src=FILE"}
			}
			if !ok {
				continue
			}
			if m.Env != "" {
				env[m.Env] = value
			}
			if m.Target == "" {
				continue
			}
		}
		back, err := r.mountOne(ctx, w, m)
		if back != nil {
			undo = append(undo, back)
		}
		if err != nil {
			return unmount, err
		}
	}
	return unmount, nil
}

// mountOne makes one mount.
func (r *run) mountOne(ctx context.Context, w *workshop,
	m plan.Mount) (back func(ctx context.Context, kept bool) error, err error) {
	target := path.Clean(m.Target)
	if target == "/" || !path.IsAbs(target) {
		return nil, &carrel.Error{Kind: carrel.Invalid,
			Err: fmt.Errorf("%q can't be the target of a mount", m.Target)}
	}
	restore, err := shelter(ctx, w, target)
	if err != nil {
		return nil, err
	}
	back = func(ctx context.Context, kept bool) error {
		var errs []error
		if m.Kind == plan.MountCache && kept {
			errs = append(errs, w.pack(ctx, bundle.Selection{Paths: []string{target}}, true,
				func(_ bundle.Packed, s io.Reader) error {
					return r.e.caches.put(ctx, r.j.project, cmp.Or(m.ID, target), s)
				}))
		}
		return errors.Join(append(errs, restore(ctx))...)
	}
	owner := fmt.Sprintf("%d:%d", m.UID, m.GID)
	mode := ""
	if m.Mode != 0 {
		mode = strconv.FormatUint(uint64(m.Mode), 8)
	}
	switch m.Kind {
	case plan.MountSecret:
		sel := bundle.Selection{Paths: []string{"secret"}}
		return back, stream(ctx, inlineTree{"secret": r.j.secrets[m.ID]}, sel,
			func(_ bundle.Packed, s io.Reader) error {
				return w.unpack(ctx, s, bundle.Placement{Target: target, Single: true, Owner: owner,
					Mode: cmp.Or(mode, "0400")})
			})
	case plan.MountBind:
		sel := bundle.Selection{Paths: []string{cmp.Or(m.Path, ".")}, Follow: true}
		return back, r.packed(ctx, m.From, "", sel, func(p bundle.Packed, s io.Reader) error {
			return w.unpack(ctx, s, bundle.Placement{Target: target, Single: p.Single})
		})
	case plan.MountCache:
		if _, err := w.order(ctx, bundle.Order{Mkdir: &bundle.MkdirOrder{Target: target,
			Owner: owner}}); err != nil {
			return back, err
		}
		f, err := r.e.caches.open(r.j.project, cmp.Or(m.ID, target))
		if err != nil || f == nil {
			return back, err
		}
		defer f.Close()
		return back, w.unpack(ctx, bufio.NewReader(f), bundle.Placement{Target: target + "/"})
	case plan.MountTmpfs:
		_, err := w.order(ctx, bundle.Order{Mkdir: &bundle.MkdirOrder{Target: target, Owner: owner}})
		return back, err
	}
	return back, &carrel.Error{Kind: carrel.Unsupported, Err: fmt.Errorf("mounts of type %q", m.Kind)}
}

// shelter packs away what lies at a target. restore removes what lies there then, and brings the
// old files back.
func shelter(ctx context.Context, w *workshop,
	target string) (restore func(ctx context.Context) error, err error) {
	aside := w.temp()
	// Directories that are made above the target go again.
	top := target
	for d := path.Dir(target); d != "/"; d = path.Dir(d) {
		if _, err := w.inside.Files("root").Stat(ctx, d); err == nil {
			break
		} else if carrel.KindOf(err) != carrel.NotFound {
			return nil, err
		}
		top = d
	}
	name := strings.TrimPrefix(target, "/")
	out, err := w.order(ctx,
		bundle.Order{Pack: &bundle.PackOrder{Selection: bundle.Selection{Paths: []string{name},
			Whole: true}, Archive: aside, Missing: true}})
	if err != nil {
		return nil, err
	}
	had := !bytes.Contains(out, []byte(`"entries":0`))
	if _, err := w.order(ctx, bundle.Order{Remove: []string{target}}); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if !had {
			_, err := w.order(ctx, bundle.Order{Remove: []string{top, aside}})
			return err
		}
		if _, err := w.order(ctx, bundle.Order{Remove: []string{target}}); err != nil {
			return err
		}
		_, err := w.order(ctx,
			bundle.Order{Unpack: &bundle.UnpackOrder{Placement: bundle.Placement{Target: "/"},
				Archive: aside}})
		return err
	}, nil
}

// addFiles carries out an ADD of files of the context: archives among them are unpacked.
func (r *run) addFiles(ctx context.Context, w *workshop, op *plan.Copy, at bundle.Placement) error {
	t, err := r.contextTree()
	if err != nil {
		return err
	}
	var plain []string
	for _, given := range op.Paths {
		name := strings.TrimPrefix(path.Clean("/"+given), "/")
		n := t.find(name)
		if n == nil || !n.info.Mode.IsRegular() {
			plain = append(plain, given)
			continue
		}
		isArchive, err := r.unpackArchive(ctx, w, t, name, at)
		if err != nil {
			return err
		}
		if !isArchive {
			plain = append(plain, given)
		}
	}
	if len(plain) == 0 {
		return nil
	}
	sel := selection(op)
	sel.Paths = plain
	return stream(ctx, t, sel, func(p bundle.Packed, s io.Reader) error {
		at.Single = p.Single && len(op.Paths) == 1
		return w.unpack(ctx, s, at)
	})
}

// unpackArchive unpacks a file of the context if it is an archive.
func (r *run) unpackArchive(ctx context.Context, w *workshop, t *archiveTree, name string,
	at bundle.Placement) (bool, error) {
	f, err := t.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	head := make([]byte, 512)
	n, _ := io.ReadFull(f, head)
	head = head[:n]
	packed := bytes.HasPrefix(head, []byte{0x1f, 0x8b}) ||
		bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd})
	if !packed && !(n == 512 && bytes.Equal(head[257:262], []byte("ustar"))) {
		return false, nil
	}
	again, err := t.Open(name)
	if err != nil {
		return false, err
	}
	defer again.Close()
	tmp, err := os.CreateTemp(r.j.dir, "add-*")
	if err != nil {
		return false, writeError(err)
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if err := normalize(ctx, tmp, again); err != nil {
		if packed { // a compressed file that is no archive is copied as it is
			return false, nil
		}
		return false, err
	}
	tree, err := openArchive(tmp.Name())
	if err != nil {
		return false, err
	}
	defer tree.Close()
	at.Target = path.Clean(at.Target) + "/"
	at.Owner, at.Mode = "", "" // the archive's own
	return true, stream(ctx, tree, bundle.Selection{Paths: []string{"."}},
		func(_ bundle.Packed, s io.Reader) error { return w.unpack(ctx, s, at) })
}

// inlineTree is a directory of small files.
type inlineTree map[string]string

var _ bundle.Tree = inlineTree{}

// Lstat implements bundle.Tree.
func (t inlineTree) Lstat(name string) (image.File, error) {
	if name == "." {
		return image.File{Mode: fs.ModeDir | 0o755}, nil
	}
	content, ok := t[name]
	if !ok {
		return image.File{}, &fs.PathError{Op: "lstat", Path: name, Err: fs.ErrNotExist}
	}
	return image.File{Mode: 0o644, Size: int64(len(content)), Modified: time.Unix(0, 0)}, nil
}

// List implements bundle.Tree.
func (t inlineTree) List(string) ([]string, error) {
	out := make([]string, 0, len(t))
	for name := range t {
		out = append(out, name)
	}
	return out, nil
}

// Open implements bundle.Tree.
func (t inlineTree) Open(name string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(t[name])), nil
}
