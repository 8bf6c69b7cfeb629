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
	"syscall"

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
				if err == nil {
					err = job.incomplete()
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

// splitRemote splits ID:PATH. A local path of that form can be written ./ID:PATH.
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
	failed       atomic.Int64 // files that could not be copied and were reported
}

// goOn reports a file that can't be copied and returns nil, so that the copy continues with the
// next one. If the next one would fail too, it returns err.
func (j *copyJob) goOn(ctx context.Context, name string, err error) error {
	kind := carrel.KindOf(err)
	if err == nil || ctx.Err() != nil || kind == carrel.Unavailable || kind == carrel.TimedOut || kind == carrel.Exhausted || errors.Is(err, syscall.ENOSPC) {
		return err
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err // the name is said
	}
	j.failed.Add(1)
	j.leftOut(name, err.Error())
	return nil
}

// incomplete returns the error of a copy that left out some files.
func (j *copyJob) incomplete() error {
	n := j.failed.Load()
	if n == 0 {
		return nil
	}
	return &carrel.Error{Op: "copy", Kind: carrel.Internal, Err: fmt.Errorf("%s could not be copied; all else was", plural(int(n), "thing"))}
}

// toolComplains reports each file that a tool in the sandbox could not copy.
func (j *copyJob) toolComplains(name string, res *carrel.Result) {
	const most = 100
	lines := strings.Split(strings.TrimSpace(string(res.Stderr)), "\n")
	for i, line := range lines {
		if i == most {
			fmt.Fprintf(j.app.err, "carrel: and %d more lines\n", len(lines)-most)
			break
		}
		if line != "" && !strings.Contains(line, "xiting with failure status") { // that is what the end says
			j.failed.Add(1)
			fmt.Fprintf(j.app.err, "carrel: %s in the sandbox: %s\n", name, printable(line))
		}
	}
	if j.failed.Load() == 0 {
		j.failed.Add(1)
		fmt.Fprintf(j.app.err, "carrel: %s in the sandbox: %s\n", name, printable(res.Status))
	}
}

// counted counts the bytes that are read, for the progress bar.
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

// uploadEach copies a directory with several workers. Then it sets what an upload does not contain:
// executable bits and symbolic links.
func (j *copyJob) uploadEach(ctx context.Context, src, dst string) error {
	var executables []string
	links := map[string]string{}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(copyWorkers)
	walkErr := filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if err != nil && p != src {
			return j.goOn(gctx, p, err)
		}
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
			if err != nil {
				return j.goOn(gctx, rel, err)
			}
			links[target] = link
		case d.Type().IsRegular():
			if info, err := d.Info(); err == nil {
				executables = append(executables, modesOf(info, target)...)
			}
			g.Go(func() error { return j.goOn(gctx, rel, j.uploadFile(gctx, p, target)) })
		default:
			j.leftOut(rel, "it is no file, directory or link")
		}
		j.bar.update(carrel.Progress{Stage: "upload", Done: j.bytes.Load()})
		return nil
	})
	// If the walk was cut short, the group's error is the cause, so it comes first.
	if err := g.Wait(); err != nil {
		return err
	}
	if walkErr != nil {
		return walkErr
	}
	return j.restoreModes(ctx, executables, links)
}

// modesOf returns target if the file is executable.
func modesOf(info fs.FileInfo, target string) []string {
	if info.Mode()&0o111 != 0 {
		return []string{target}
	}
	return nil
}

// restoreModes makes files executable, and makes links. Names are passed as arguments, never
// through a shell's parser.
func (j *copyJob) restoreModes(ctx context.Context, executables []string, links map[string]string) error {
	const batch = 200 // far below the limit of a command line
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
