package bench

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build/buildcontext"
)

// buildBase is the name of the template and of the image that the measured builds begin from.
const buildBase = "benchbase"

// buildJob is one kind of build: what changes from one build to the next.
type buildJob struct {
	key, name  string
	dockerfile func(base string, n int) string
	// change changes the context for build n; nil changes nothing.
	change func(dir string, n int) error
}

// manySteps is a Dockerfile of seven steps that change files. last is the last one.
func manySteps(base, last string) string {
	text := "FROM " + base + "\nCOPY . /src\n"
	for i := range 5 {
		text += fmt.Sprintf("RUN echo %d > /made%d\n", i, i)
	}
	return text + "RUN " + last + "\n"
}

// buildJobs are the measured builds.
var buildJobs = []buildJob{
	{"nothing", "nothing changed", func(base string, _ int) string { return manySteps(base, "true") },
		nil},
	{"last", "the last RUN changed", func(base string,
		n int) string {
		return manySteps(base, fmt.Sprintf("echo %d > /last", n))
	}, nil},
	{"copy", "a copied file changed: every step runs",
		func(base string, _ int) string { return manySteps(base, "echo copy > /last") },
		func(dir string, n int) error {
			return os.WriteFile(filepath.Join(dir, "changed"), fmt.Append(nil, n), 0o600)
		}},
	{"stages", "two stages that do not need each other, of 1 s each", func(base string, n int) string {
		stage := func(name string) string {
			return fmt.Sprintf(
				"FROM %s AS %s\nRUN end=$(($(date +%%s%%N) + 1000000000)); while [ $(date +%%s%%N) -lt $end ]; do :; done; echo %d > /%s\n", base, name, n, name)
		}
		return stage("one") + stage("two") + "FROM " + base +
			"\nCOPY --from=one /one /one\nCOPY --from=two /two /two\n"
	}, nil},
}

// benchBuild measures builds of templates beside buildah's of the same Dockerfiles, and an import
// of 1 GB in 100,000 files.
func benchBuild(ctx context.Context, s *session) ([]row, error) {
	d, err := s.coldDaemon(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "carrel-bench-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	root, err := smallRoot(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := d.svc.ImportTemplate(ctx, buildBase, bytes.NewReader(root), nil); err != nil {
		return nil, err
	}
	peer, err := newBuildah(ctx, dir, root)
	if err != nil {
		s.logf("buildah is left out: %v", err)
	} else {
		defer peer.remove(context.WithoutCancel(ctx))
	}
	var rows []row
	for _, job := range buildJobs {
		list, err := buildRunners(d, peer, job, filepath.Join(dir, job.key))
		if err != nil {
			return rows, err
		}
		if err := race(ctx, 1, max(3, s.o.samples(8)), list...); err != nil {
			return rows, fmt.Errorf("%s: %w", job.name, err)
		}
		for _, r := range list {
			rows = append(rows, summarise(r.name+": build, "+job.name, "ms",
				r.times).key("build."+job.key+"."+r.name))
		}
	}
	more, err := benchImport(ctx, d)
	return append(rows, more...), err
}

// buildRunners are the sides of one comparison.
func buildRunners(d *daemon, peer *buildah, job buildJob, dir string) ([]*runner, error) {
	files := filepath.Join(dir, "context")
	if err := os.MkdirAll(files, 0o700); err != nil {
		return nil, err
	}
	for i := range 50 {
		if err := os.WriteFile(filepath.Join(files, fmt.Sprint("file", i)),
			bytes.Repeat([]byte{byte(i)}, 10_000), 0o600); err != nil {
			return nil, err
		}
	}
	side := func(name, base string, build func(ctx context.Context, dockerfile string) error) *runner {
		n := 0
		return &runner{name: name, once: func(ctx context.Context) (time.Duration, error) {
			n++
			if job.change != nil {
				if err := job.change(files, n); err != nil {
					return 0, err
				}
			}
			start := time.Now()
			err := build(ctx, job.dockerfile(base, n))
			return time.Since(start), err
		}}
	}
	list := []*runner{side("carrel", "template://"+buildBase,
		func(ctx context.Context, text string) error { return d.build(ctx, text, files) })}
	if peer != nil {
		list = append(list, side("buildah", "localhost/"+buildBase,
			func(ctx context.Context, text string) error { return peer.build(ctx, text, files) }))
	}
	return list, nil
}

// build builds a template as carrel template build does.
func (d *daemon) build(ctx context.Context, dockerfile, dir string) error {
	files, err := buildcontext.Open(ctx, dir, buildcontext.Options{})
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	defer r.Close()
	go func() { w.CloseWithError(files.WriteTar(ctx, w, nil)) }()
	b, err := d.svc.StartBuild(ctx, carrel.BuildSpec{Name: "benchbuilt", Dockerfile: dockerfile,
		Context: r})
	if err != nil {
		return err
	}
	for _, err := range d.svc.BuildLogs(ctx, b.ID, carrel.BuildLogOptions{Follow: true}) {
		if err != nil {
			return err
		}
	}
	if b, err = d.svc.GetBuild(ctx, b.ID); err != nil {
		return err
	}
	if b.State != carrel.BuildReady {
		return fmt.Errorf("the build is %s: %+v", b.State, b.Reason)
	}
	return nil
}

// buildah runs buildah, with a store of its own.
type buildah struct{ dir, driver string }

// newBuildah makes the base image. It tries the driver overlay first, which needs more of a
// machine.
func newBuildah(ctx context.Context, dir string, root []byte) (*buildah, error) {
	if _, err := exec.LookPath("buildah"); err != nil {
		return nil, err
	}
	archive := filepath.Join(dir, "root.tar")
	if err := os.WriteFile(archive, root, 0o600); err != nil {
		return nil, err
	}
	var all error
	for _, driver := range []string{"overlay", "vfs"} {
		b := &buildah{dir: filepath.Join(dir, "buildah-"+driver), driver: driver}
		err := b.build(ctx, "FROM scratch\nADD root.tar /\n", dir, "-t", buildBase)
		if err == nil {
			return b, nil
		}
		b.remove(ctx)
		all = errors.Join(all, err)
	}
	return nil, all
}

func (b *buildah) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "buildah", append(
		[]string{"--root", b.dir + "/root", "--runroot", b.dir + "/run", "--storage-driver", b.driver},
		args...)...)
}

// build builds an image, with buildah's cache of layers.
func (b *buildah) build(ctx context.Context, dockerfile, dir string, more ...string) error {
	args := append([]string{"bud", "--isolation", "chroot", "--layers", "--jobs", "2", "-q", "-f",
		"-"}, more...)
	cmd := b.command(ctx, append(args, dir)...)
	cmd.Stdin = strings.NewReader(dockerfile)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("buildah: %w: %s", err, clip(string(out)))
	}
	return nil
}

// remove removes all images and layers: their directories may have modes that no plain removal gets
// past.
func (b *buildah) remove(ctx context.Context) {
	_ = b.command(ctx, "rm", "-a").Run()
	_ = b.command(ctx, "rmi", "-a", "-f").Run()
	_ = os.RemoveAll(b.dir)
}

// clip bounds what another program said.
func clip(text string) string {
	if len(text) > 500 {
		text = text[len(text)-500:]
	}
	return strings.TrimSpace(text)
}

// library matches the paths in ldd's output.
var library = regexp.MustCompile(`(/\S+)\s+\(0x`)

// smallRoot is a root filesystem with a shell, date and the libraries of both, as a tar stream.
func smallRoot(ctx context.Context) ([]byte, error) {
	files := map[string]string{} // in the root: on this machine
	for _, program := range []string{"/bin/sh", "/bin/date"} {
		path, err := filepath.EvalSymlinks(program)
		if err != nil {
			return nil, err
		}
		files[program] = path
		out, err := exec.CommandContext(ctx, "ldd", path).Output()
		if err != nil {
			return nil, fmt.Errorf("ldd %s: %w", path, err)
		}
		for _, m := range library.FindAllSubmatch(out, -1) {
			files[string(m[1])] = string(m[1])
		}
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{}
	for name, source := range files {
		content, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		name = strings.TrimPrefix(name, "/")
		for dir := filepath.Dir(name); dir != "." && !made[dir]; dir = filepath.Dir(dir) {
			made[dir] = true
			if err := w.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir,
				Mode: 0o755}); err != nil {
				return nil, err
			}
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)),
			Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{"tmp", "root", "etc"} {
		if err := w.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir,
			Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

// The image of benchImport.
const (
	importFiles    = 100_000
	importFileSize = 10_000
)

// benchImport makes a template of 1 GB in 100,000 files, and measures the daemon's memory.
func benchImport(ctx context.Context, d *daemon) ([]row, error) {
	r, w := io.Pipe()
	defer r.Close()
	go func() { w.CloseWithError(manyFiles(w)) }()
	// From here on the kernel notes the most memory anew.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", d.cmd.Process.Pid), []byte("5"), 0)
	start := time.Now()
	t, err := d.svc.ImportTemplate(ctx, "benchimport", r, nil)
	if err != nil {
		return nil, err
	}
	took := time.Since(start)
	most := peakMemory(d.cmd.Process.Pid)
	rows := []row{
		single("import of 1 GB in 100,000 files", "s", took.Seconds()).key("build.import"),
		single("import of 1 GB in 100,000 files: the daemon's most memory", "MiB",
			most).key("build.import.memory"),
	}
	return rows, d.svc.DeleteTemplate(ctx, t.ID)
}

// manyFiles writes a root filesystem of files that do not compress well.
func manyFiles(out io.Writer) error {
	w := tar.NewWriter(out)
	content := make([]byte, importFileSize)
	seed := uint64(1)
	for i := range importFiles {
		for k := 0; k+8 <= len(content); k += 8 {
			seed = seed*6364136223846793005 + 1442695040888963407
			for j := range 8 {
				content[k+j] = byte(seed >> (8 * j))
			}
		}
		if i%1000 == 0 {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("data/%d/", i/1000), Typeflag: tar.TypeDir,
				Mode: 0o755}); err != nil {
				return err
			}
		}
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("data/%d/%d", i/1000, i),
			Typeflag: tar.TypeReg, Mode: 0o644, Size: importFileSize}); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	return w.Close()
}
