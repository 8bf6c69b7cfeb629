package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

// copyWorkers is how many files are copied at once.
const copyWorkers = 4

// copyCommand is "carrel cp".
func (a *app) copyCommand() *cobra.Command {
	var user string
	c := &cobra.Command{
		Use:   "cp SRC DST",
		Short: "Copy files and directories into or out of a sandbox",
		Long: `Copies files and directories; the side in the sandbox is written ID:PATH. A path
there that is not absolute begins at the user's home. "-" is standard input or
output. What comes out of a sandbox can't be written outside DST: links that point
elsewhere are left out and named.`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			srcID, src, srcInside := splitRemote(args[0])
			dstID, dst, dstInside := splitRemote(args[1])
			if srcInside == dstInside {
				return usage(fmt.Errorf("exactly one of SRC and DST must be ID:PATH"))
			}
			idText := srcID + dstID
			id, err := carrel.ParseID(idText)
			if err != nil {
				return err
			}
			return a.withService(c.Context(), func(svc carrel.Service) error {
				comp, err := computer(c.Context(), svc, id)
				if err != nil {
					return err
				}
				job := &copyJob{app: a, comp: comp, files: comp.Files(user), user: user, bar: newBar(a.err)}
				defer job.bar.done()
				if dstInside {
					err = job.upload(c.Context(), src, dst)
				} else {
					err = job.download(c.Context(), src, dst)
				}
				if err == nil && a.json {
					err = a.printJSON(map[string]int64{"bytes": job.bytes.Load(), "files": job.count.Load()})
				}
				return err
			})
		},
	}
	c.Flags().StringVarP(&user, "user", "u", "", "user who owns what is written (default: the template's)")
	return c
}

// splitRemote splits ID:PATH. A local path that looks like one can be written ./ID:PATH.
func splitRemote(arg string) (id, name string, inside bool) {
	if head, rest, ok := strings.Cut(arg, ":"); ok {
		if _, err := carrel.ParseID(head); err == nil {
			return head, rest, true
		}
	}
	return "", arg, false
}

// copyJob is one run of cp.
type copyJob struct {
	app          *app
	comp         carrel.Computer
	files        carrel.Files
	user         string
	bar          *bar
	bytes, count atomic.Int64
}

// counted counts what is read, for the progress bar.
type counted struct {
	io.Reader
	job *copyJob
}

// Read implements io.Reader.
func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.job.bytes.Add(int64(n))
	return n, err
}

// upload copies a local file or directory, or standard input, into the sandbox.
func (j *copyJob) upload(ctx context.Context, src, dst string) error {
	if src == "-" {
		_, err := j.files.Write(ctx, dst, counted{j.app.in, j})
		j.count.Add(1)
		return err
	}
	info, err := os.Stat(src)
	if err != nil {
		return usage(err)
	}
	target := dst
	if there, err := j.files.Stat(ctx, dst); (err == nil && there.Mode.IsDir()) || strings.HasSuffix(dst, "/") || dst == "" {
		target = path.Join(dst, filepath.Base(filepath.Clean(src))) // into an existing directory, as cp does
	}
	if !info.IsDir() {
		if err := j.uploadFile(ctx, src, target); err != nil {
			return err
		}
		return j.restoreModes(ctx, modesOf(info, target), nil)
	}
	return j.uploadTree(ctx, src, target)
}

func (j *copyJob) uploadFile(ctx context.Context, src, dst string) error {
	f, err := os.Open(src)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := j.files.Write(ctx, dst, counted{f, j}); err != nil {
		return err
	}
	j.count.Add(1)
	return nil
}

// uploadEach copies a directory with workers, then sets what an upload can't
// carry: executable bits and symbolic links.
func (j *copyJob) uploadEach(ctx context.Context, src, dst string) error {
	var executables []string
	links := map[string]string{}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(copyWorkers)
	walkErr := filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, p)
		if err != nil {
			return err
		}
		target := path.Join(dst, filepath.ToSlash(rel))
		switch {
		case gctx.Err() != nil:
			return gctx.Err()
		case d.IsDir():
			if err := j.files.MakeDir(gctx, target); err != nil && !errors.Is(err, carrel.AlreadyExists) {
				return err
			}
		case d.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(p)
			links[target] = link
			return err
		case d.Type().IsRegular():
			if info, err := d.Info(); err == nil {
				executables = append(executables, modesOf(info, target)...)
			}
			g.Go(func() error { return j.uploadFile(gctx, p, target) })
		default:
			j.leftOut(rel, "it is no file, directory or link")
		}
		j.bar.update(carrel.Progress{Stage: "upload", Done: j.bytes.Load()})
		return nil
	})
	// The group's error comes first: it is the cause when the walk was cut short.
	if err := g.Wait(); err != nil {
		return err
	}
	if walkErr != nil {
		return walkErr
	}
	return j.restoreModes(ctx, executables, links)
}

// modesOf returns target when the file is executable.
func modesOf(info fs.FileInfo, target string) []string {
	if info.Mode()&0o111 != 0 {
		return []string{target}
	}
	return nil
}

// restoreModes makes files executable and links. Names go as arguments, never
// through a shell's parser.
func (j *copyJob) restoreModes(ctx context.Context, executables []string, links map[string]string) error {
	const batch = 200 // stays far below the limit on a command line
	for len(executables) > 0 {
		n := min(batch, len(executables))
		if err := j.runTool(ctx, append([]string{"chmod", "--", "+x"}, executables[:n]...)); err != nil {
			return err
		}
		executables = executables[n:]
	}
	for target, link := range links {
		if err := j.runTool(ctx, []string{"ln", "-sfn", "--", link, target}); err != nil {
			return err
		}
		j.count.Add(1)
	}
	return nil
}

func (j *copyJob) runTool(ctx context.Context, line []string) error {
	res, err := j.comp.Run(ctx, carrel.Command{Args: line, User: j.user})
	if err != nil {
		return err
	}
	if res.ExitCode != 0 {
		return toolError(line[0], res)
	}
	return nil
}
