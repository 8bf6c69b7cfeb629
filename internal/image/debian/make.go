package debian

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
)

const opMake = "make template"

// StageConfigure is the stage of a [carrel.Progress] in which the packages' scripts run.
const StageConfigure = "configure"

// format goes up when this code makes another image of the same pins.
const format = 2

// Sandbox starts a sandbox from a first image, calls use with its inside, and ends the sandbox.
// skip are the places in the sandbox's tree that are not the image's.
type Sandbox func(ctx context.Context, first image.Image,
	use func(in Inside, skip ...string) error) error

// Options configures a Maker.
type Options struct {
	Set     *Set
	Fetcher *Fetcher
	Sandbox Sandbox
	Log     *slog.Logger // nil discards
}

// Maker makes templates. It makes one at a time at most: the callers see to that.
type Maker struct{ opts Options }

// NewMaker returns a Maker.
func NewMaker(opts Options) *Maker {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Maker{opts: opts}
}

// BuiltIns returns the templates of the set.
func (m *Maker) BuiltIns() []image.BuiltIn {
	out := make([]image.BuiltIn, 0, len(m.opts.Set.Templates))
	for _, c := range m.opts.Set.Templates {
		out = append(out, image.BuiltIn{
			Template: m.template(c),
			Print:    m.print(c),
			Make: func(ctx context.Context, dir string, meter *image.Meter) (*os.File, carrel.Template,
				error) {
				return m.make(ctx, c, dir, meter)
			},
		})
	}
	return out
}

func (m *Maker) source() string {
	s := m.opts.Set
	return fmt.Sprintf("Debian %s (%s), packages of %s", s.Version, s.Suite,
		s.time().Format(time.DateOnly))
}

func environment() map[string]string {
	return map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG": "C.UTF-8"}
}

// print changes when the template is made of other packages or in another way.
func (m *Maker) print(c Contents) string {
	h := sha256.New()
	fmt.Fprintf(h, "format %d %s\n%s\n%q %v %v %q %q\n", format, configureScript, c.Name, dropped,
		emptied, written, noSetID, mounted)
	fmt.Fprintln(h, tarCommand, m.opts.Set.Epoch, m.opts.Set.Suite, m.opts.Set.Arch)
	pins, _ := m.opts.Set.packages(c) // ParseSet has checked them
	for _, p := range pins {
		fmt.Fprintln(h, p.Name, p.SHA256)
	}
	if p, ok := programs[c.Name]; ok {
		fmt.Fprintf(h, "%q %q\n", p.start, p.ready)
	}
	return hex.EncodeToString(h.Sum(nil))[:20]
}

// make makes one template. The file that it returns is the finished image, in dir.
func (m *Maker) make(ctx context.Context, c Contents, dir string,
	meter *image.Meter) (*os.File, carrel.Template, error) {
	start := time.Now()
	pins, err := m.opts.Set.packages(c)
	if err != nil {
		return nil, carrel.Template{}, err
	}
	if m.opts.Sandbox == nil {
		return nil, carrel.Template{}, &carrel.Error{Op: opMake, Kind: carrel.Unsupported,
			Err: errNoSandbox}
	}
	if err := m.opts.Fetcher.Fetch(ctx, pins, meter); err != nil {
		return nil, carrel.Template{}, archive.Classify(opMake, err)
	}
	first, err := m.unpack(ctx, pins, dir, meter)
	if err != nil {
		return nil, carrel.Template{}, archive.Classify(opMake, err)
	}
	defer os.Remove(first)
	f, err := m.configure(ctx, c, first, dir, meter)
	if err != nil {
		return nil, carrel.Template{}, archive.Classify(opMake, err)
	}
	digest, err := digestOf(f)
	if err != nil {
		_ = f.Close()
		return nil, carrel.Template{}, archive.Classify(opMake, err)
	}
	m.opts.Fetcher.Prune(m.opts.Set.Pins, time.Now())
	m.opts.Log.Info("made a built-in template", "template", c.Name, "packages", len(pins), "digest",
		digest,
		"took", time.Since(start).Round(time.Millisecond))
	tm := m.template(c)
	tm.Digest = digest
	return f, tm, nil
}

// template is what is known of a template before it is made.
func (m *Maker) template(c Contents) carrel.Template {
	p := programs[c.Name]
	return carrel.Template{ID: templateID(c.Name), Name: c.Name, Source: m.source(), BuiltIn: true,
		Env: environment(), User: "user", Start: p.start, Ready: p.ready}
}

// unpack makes the first image and returns its file's name.
func (m *Maker) unpack(ctx context.Context, pins []Pin, dir string,
	meter *image.Meter) (string, error) {
	f, err := m.fromTar(ctx, dir, meter, func(w io.Writer) error {
		return WriteRoot(w, pins, m.opts.Set.time(), m.opts.Fetcher.Open)
	})
	if err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}

// configure makes the template's image from the first one.
func (m *Maker) configure(ctx context.Context, c Contents, first, dir string,
	meter *image.Meter) (*os.File, error) {
	meter.Flush()
	meter.Stage(StageConfigure, 0)
	meter.Flush()
	img := image.Image{Path: first, Template: carrel.Template{Name: c.Name, Env: environment(),
		User: "root"}}
	var f *os.File
	err := m.opts.Sandbox(ctx, img, func(in Inside, skip ...string) (err error) {
		f, err = m.fromTar(ctx, dir, meter, func(w io.Writer) error {
			return m.cleaned(ctx, in, w, skip)
		})
		return err
	})
	if err != nil && f != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
	return f, err
}

// cleaned writes the configured and cleaned tree.
func (m *Maker) cleaned(ctx context.Context, in Inside, w io.Writer, skip []string) error {
	pr, pw := io.Pipe()
	configured := make(chan error, 1)
	go func() {
		err := Configure(ctx, in, m.opts.Set, pw)
		_ = pw.CloseWithError(err)
		configured <- err
	}()
	err := Clean(w, pr, m.opts.Set.time(), skip...)
	_, _ = io.Copy(io.Discard, pr) // padding after the archive's end
	_ = pr.CloseWithError(err)
	if cerr := <-configured; cerr != nil {
		return cerr // the reason for err, if there is one
	}
	return err
}

// fromTar makes an image from a tar stream that write writes.
func (m *Maker) fromTar(ctx context.Context, dir string, meter *image.Meter,
	write func(io.Writer) error) (*os.File, error) {
	pr, pw := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := write(pw)
		_ = pw.CloseWithError(err)
		written <- err
	}()
	imp := archive.Importer{
		NewFile: func() (*os.File, error) { return os.CreateTemp(dir, "part-*") },
		Limits:  archive.Limits{MaxBytes: maxFiles}, Meter: meter,
	}
	f, _, err := imp.Stream(ctx, pr)
	_ = pr.CloseWithError(err)
	if werr := <-written; werr != nil && (err == nil || !isReaderGone(werr, err)) {
		if f != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
		return nil, werr
	}
	return f, err
}

// isReaderGone reports whether a writer failed only because its reader had failed.
func isReaderGone(werr, rerr error) bool { return rerr != nil && werr.Error() == rerr.Error() }

// digestOf sums a finished image.
func digestOf(f *os.File) (string, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// CacheDir is where a Fetcher keeps packages, inside the cache directory of a store.
func CacheDir(cache string) string { return filepath.Join(cache, "debs") }
