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
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"golang.org/x/time/rate"

	"github.com/carrel-dev/carrel"
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
	if !lazyAble() {
		return nil, errors.New("a lazy pull needs root and /dev/fuse")
	}
	host, end := slowRegistry()
	defer end()
	d, err := s.daemon(ctx, "--allow-registry", host)
	if err != nil {
		return nil, err
	}
	defer d.stop()
	registries, ok := d.svc.(carrel.Registries)
	if !ok {
		return nil, errors.New("the client pulls no images")
	}
	image := host + "/bench/data:1"
	if err := publishLazy(ctx, s, d, registries, image); err != nil {
		return nil, err
	}
	var rows []row
	for _, tier := range []carrel.Tier{carrel.GVisor, carrel.NS} {
		var filled []float64
		whole := &runner{name: "whole", once: func(ctx context.Context) (time.Duration, error) {
			return d.firstOf(ctx, tier, registries, carrel.PullOptions{Image: image}, nil)
		}}
		lazy := &runner{name: "lazy", once: func(ctx context.Context) (time.Duration, error) {
			return d.firstOf(ctx, tier, registries, carrel.PullOptions{Image: image, Lazy: true}, &filled)
		}}
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

func lazyAble() bool {
	_, err := os.Stat("/dev/fuse")
	return err == nil && os.Getuid() == 0
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

// publishLazy puts the image into the registry, in the format of carrel template push.
func publishLazy(ctx context.Context, s *session, d *daemon, registries carrel.Registries, image string) error {
	const name = "bench-data"
	r, w := io.Pipe()
	go func() { w.CloseWithError(writeLazyRoot(w, s.o.Carrel)) }()
	_, err := d.svc.ImportTemplate(ctx, name, r, nil)
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	if _, err := registries.PushTemplate(ctx, name, carrel.PushOptions{Image: image}, nil); err != nil {
		return err
	}
	return d.svc.DeleteTemplate(ctx, name)
}

// writeLazyRoot writes the archive of the image's root.
func writeLazyRoot(out io.Writer, program string) error {
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
	random, piece := rand.NewChaCha8([32]byte{}), make([]byte, lazyFileSize)
	for i := 0; i < lazyFiles && err == nil; i++ {
		_, _ = random.Read(piece)
		err = add(fmt.Sprintf("data/%d", i), 0o644, piece)
	}
	return errors.Join(err, w.Close())
}

// slowRegistry is a registry in this process. All its answers share one rate.
func slowRegistry() (host string, end func()) {
	limit := rate.NewLimiter(lazyRate, lazyPiece)
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner.ServeHTTP(slowWriter{w, r.Context(), limit}, r)
	}))
	return strings.TrimPrefix(ts.URL, "http://"), func() { ts.CloseClientConnections(); ts.Close() }
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
