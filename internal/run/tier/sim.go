//go:build linux

package tier

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/carrel-dev/carrel"
)

// simCarrier uses the guest's file calls, because the simulated machine has no tar.
type simCarrier struct {
	b   *box
	dir string
}

// workers is how many files are copied at once. batch is how many names one shell gets.
const (
	workers = 8
	batch   = 100
)

func (c *simCarrier) load(ctx context.Context, src *source) error {
	files := c.b.comp.Files(c.b.user)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	var links, dirs [][]string
	modes := map[fs.FileMode][]string{}
	for _, rel := range src.order {
		info, at := src.infos[rel], path.Join(c.dir, rel)
		switch {
		case info.IsDir():
			dirs = append(dirs, []string{at})
			modes[info.Mode().Perm()] = append(modes[info.Mode().Perm()], at)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := readlink(src, rel)
			if err != nil {
				return err
			}
			links = append(links, []string{target, at})
		default:
			modes[info.Mode().Perm()] = append(modes[info.Mode().Perm()], at)
		}
	}
	if err := c.each(ctx, `mkdir -p -- "$1"`, dirs); err != nil {
		return err
	}
	for _, rel := range src.order {
		if info := src.infos[rel]; !info.Mode().IsRegular() {
			continue
		}
		g.Go(func() error {
			f, err := src.open(rel)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = files.Write(gctx, path.Join(c.dir, rel), f)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := c.each(ctx, `ln -s -- "$1" "$2"`, links); err != nil {
		return err
	}
	for mode, names := range modes { // last, because a directory without permissions takes no more files
		var groups [][]string
		for i := len(names); i > 0; i-- { // what is in it before it
			groups = append(groups, []string{fmt.Sprintf("%o", mode), names[i-1]})
		}
		if err := c.each(ctx, `chmod "$1" "$2"`, groups); err != nil {
			return err
		}
	}
	return nil
}

// each runs a shell line for each group of arguments, many groups in one shell.
func (c *simCarrier) each(ctx context.Context, line string, groups [][]string) error {
	for len(groups) > 0 {
		n := min(batch, len(groups))
		args := []string{"/bin/bash", "-c", fmt.Sprintf(`while [ $# -gt 0 ]; do %s || exit 1; shift %d; done`, line, len(groups[0])), "bash"}
		for _, g := range groups[:n] {
			args = append(args, g...)
		}
		groups = groups[n:]
		if _, err := c.b.inside(ctx, "copy", carrel.Command{Args: args, User: c.b.user}); err != nil {
			return err
		}
	}
	return nil
}

func (c *simCarrier) look(ctx context.Context) (map[string]meta, error) {
	list, err := c.b.comp.Files("root").List(ctx, c.dir, 1<<16)
	if err != nil {
		return nil, err
	}
	out := make(map[string]meta, len(list))
	for _, f := range list {
		rel, ok := strings.CutPrefix(f.Path, strings.TrimSuffix(c.dir, "/")+"/")
		if !ok || !local(rel) {
			continue
		}
		m := meta{typ: 'f', perm: uint32(f.Mode.Perm())}
		switch {
		case f.Mode&fs.ModeSymlink != 0:
			m.typ, m.sign = 'l', f.Target
		case f.Mode.IsDir():
			m.typ = 'd'
		default:
			m.sign = fmt.Sprint(f.Size, f.Modified.UnixNano())
		}
		out[rel] = m
	}
	return out, nil
}

func (c *simCarrier) fetch(ctx context.Context, names []string, put func(item, io.Reader) error) error {
	files := c.b.comp.Files("root")
	for _, name := range names {
		at := path.Join(c.dir, name)
		res, err := c.b.comp.Run(ctx, carrel.Command{Args: []string{"readlink", "-n", "--", at}, User: "root", Dir: "/"})
		if err != nil {
			return err
		}
		if res.ExitCode == 0 {
			if err := put(item{name: name, isLnk: true, link: string(res.Stdout)}, nil); err != nil {
				return err
			}
			continue
		}
		info, err := files.Stat(ctx, at)
		if carrel.KindOf(err) == carrel.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		r, err := files.Read(ctx, at)
		if err != nil {
			return err
		}
		err = put(item{name: name, size: info.Size, mtime: info.Modified}, r)
		_ = r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
