package bench

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"golang.org/x/time/rate"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image/filler"
)

// The image that is pulled lazily and whole: one program, and data that does not compress.
const (
	lazyFiles    = 50
	lazyFileSize = 4 << 20
	lazyRate     = 20 << 20 // bytes per second that the registry sends
	lazyPiece    = 64 << 10 // bytes that it sends at once
)

// benchLazy measures from a pull to the output of the first command in a sandbox of the image,
// whole and lazily, from a registry that is as slow as a real network. It also measures how long
// a lazy pull takes until the image is whole.
func benchLazy(ctx context.Context, s *session) ([]row, error) {
	if err := filler.Able(); err != nil {
		return nil, err
	}
	from := newSlowRegistry()
	defer from.end()
	d, err := s.daemon(ctx, "--allow-registry", from.host)
	if err != nil {
		return nil, err
	}
	defer d.stop()
	registries, ok := d.svc.(carrel.Registries)
	if !ok {
		return nil, errors.New("the client pulls no images")
	}
	var rows []row
	for _, tier := range []carrel.Tier{carrel.GVisor, carrel.NS} {
		var filled []float64
		pull := func(lazy bool, filled *[]float64) func(context.Context) (time.Duration, error) {
			return func(ctx context.Context) (time.Duration, error) {
				image, err := from.publish(ctx, s, d, registries)
				if err != nil {
					return 0, err
				}
				return d.firstOf(ctx, tier, registries, carrel.PullOptions{Image: image, Lazy: lazy}, filled)
			}
		}
		whole := &runner{name: "whole", once: pull(false, nil)}
		lazy := &runner{name: "lazy", once: pull(true, &filled)}
		if err := race(ctx, 0, s.o.samples(5), whole, lazy); err != nil {
			return rows, err
		}
		key, name := "lazy."+string(tier), string(tier)+": "
		rows = append(rows,
			summarise(name+"pull of 200 MB at 20 MB/s → first command's output", "ms", whole.times).key(key+".whole"),
			summarise(name+"the same lazily", "ms", lazy.times).key(key),
			atMost(ratio("  lazily ÷ whole", lazy.times, whole.times), 0.4).key(key+"/whole"),
			summarise("  until the image is whole", "ms", filled).key(key+".filled"))
	}
	return rows, nil
}

// firstOf pulls the image, makes a sandbox of it and runs its program. filled gets the time until
// the image was whole.
func (d *daemon) firstOf(ctx context.Context, tier carrel.Tier, registries carrel.Registries,
	opts carrel.PullOptions, filled *[]float64) (took time.Duration, err error) {
	const name = "bench-lazy"
	start := time.Now()
	t, err := registries.PullImage(ctx, name, opts, nil)
	if err != nil {
		return 0, err
	}
	sb, err := d.svc.Create(ctx, carrel.CreateOptions{Template: name, Tier: tier, Timeout: time.Hour})
	if err != nil {
		return 0, err
	}
	c, err := d.svc.Computer(ctx, sb.ID)
	if err == nil {
		var res *carrel.Result
		res, err = c.Run(ctx, carrel.Command{Args: []string{"/bin/carrel", "version"}})
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("exit status %d: %s", res.ExitCode, res.Stderr)
		}
	}
	took = time.Since(start)
	for err == nil && opts.Lazy {
		if t, err = d.svc.GetTemplate(ctx, name); t.Lazy == nil {
			break
		}
		err = errors.Join(err, sleep(ctx, 20*time.Millisecond))
	}
	if filled != nil {
		*filled = append(*filled, ms(time.Since(start)))
	}
	return took, errors.Join(err, d.svc.Kill(ctx, sb.ID), d.svc.DeleteTemplate(ctx, name))
}

// publish puts an image into an empty registry, in the format of carrel template push. No two images
// share a layer, because the daemon keeps the layers that it pulled.
func (f *slowRegistry) publish(ctx context.Context, s *session, d *daemon, registries carrel.Registries) (image string, err error) {
	const name = "bench-data"
	f.number++
	image = fmt.Sprintf("%s/bench/data:%d", f.host, f.number)
	f.empty()
	r, w := io.Pipe()
	go func() { w.CloseWithError(writeLazyRoot(w, s.o.Carrel, f.number)) }()
	_, err = d.svc.ImportTemplate(ctx, name, r, nil)
	if err := errors.Join(err, r.Close()); err != nil {
		return "", err
	}
	if _, err := registries.PushTemplate(ctx, name, carrel.PushOptions{Image: image}, nil); err != nil {
		return "", err
	}
	return image, d.svc.DeleteTemplate(ctx, name)
}

// writeLazyRoot writes the archive of an image's root. Its data depends on the number.
func writeLazyRoot(out io.Writer, program string, number byte) error {
	w := tar.NewWriter(out)
	add := func(name string, mode int64, content []byte) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	raw, err := os.ReadFile(program)
	if err == nil {
		err = add("bin/carrel", 0o755, raw)
	}
	random, piece := rand.NewChaCha8([32]byte{number}), make([]byte, lazyFileSize)
	for i := 0; i < lazyFiles && err == nil; i++ {
		_, _ = random.Read(piece)
		err = add(fmt.Sprintf("data/%d", i), 0o644, piece)
	}
	return errors.Join(err, w.Close())
}

// slowRegistry is a registry in this process. All its answers share one rate.
type slowRegistry struct {
	host   string
	end    func()
	inner  atomic.Pointer[http.Handler]
	number byte // of the newest image
}

func newSlowRegistry() *slowRegistry {
	f, limit := &slowRegistry{}, rate.NewLimiter(lazyRate, lazyPiece)
	f.empty()
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*f.inner.Load()).ServeHTTP(slowWriter{w, r.Context(), limit}, r)
	}))
	f.host = strings.TrimPrefix(ts.URL, "http://")
	f.end = func() { ts.CloseClientConnections(); ts.Close() }
	return f
}

// empty removes all images.
func (f *slowRegistry) empty() {
	h := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	f.inner.Store(&h)
}

// slowWriter is an answer whose body waits for the shared rate.
type slowWriter struct {
	http.ResponseWriter
	ctx   context.Context
	limit *rate.Limiter
}

// Write implements io.Writer.
func (w slowWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		piece := p[:min(len(p), lazyPiece)]
		if err = w.limit.WaitN(w.ctx, len(piece)); err == nil {
			var m int
			m, err = w.ResponseWriter.Write(piece)
			n, p = n+m, p[m:]
		}
	}
	return n, err
}
