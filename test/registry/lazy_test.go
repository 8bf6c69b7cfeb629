package registry_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	server "github.com/google/go-containerregistry/pkg/registry"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image/filler"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// manyChunks is the size of a request that only the background of a lazy pull sends: demand asks for
// one chunk of 1 MiB at a time.
const manyChunks = 1<<20 + 100_000

// gzipEnd is more than the bytes with which a chunk's gzip stream ends: its last block has none of
// the content, and a checksum and a size follow.
const gzipEnd = 32

// holding is a registry that keeps requests for many chunks waiting until free is called. While lies
// is set, it changes the last byte of each chunk.
func holding(t *testing.T) (host string, held *atomic.Int64, lies *atomic.Bool, free func()) {
	t.Helper()
	inner := server.New(server.Logger(log.New(io.Discard, "", 0)))
	held, lies = new(atomic.Int64), new(atomic.Bool)
	wait := make(chan struct{})
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var from, to int64
		if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); n == 2 && to-from > manyChunks {
			held.Add(1)
			select {
			case <-wait:
			case <-r.Context().Done():
				return
			}
		} else if n == 2 && lies.Load() {
			answer := httptest.NewRecorder()
			inner.ServeHTTP(answer, r)
			body := answer.Body.Bytes()
			body[len(body)-1-gzipEnd] ^= 1
			w.Header().Set("Content-Range", answer.Header().Get("Content-Range"))
			w.WriteHeader(answer.Code)
			_, _ = w.Write(body)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	free = sync.OnceFunc(func() { close(wait) })
	t.Cleanup(ts.Close)
	t.Cleanup(ts.CloseClientConnections)
	t.Cleanup(free)
	return strings.TrimPrefix(ts.URL, "http://"), held, lies, free
}

// withData is the small root with files that do not compress. It returns their checksums, too.
func withData(t *testing.T) (archive string, sums []string) {
	t.Helper()
	raw, err := daemontest.SmallRoot()
	testenv.Need(t, "ldd", err)
	random, files := rand.NewChaCha8([32]byte{7}), map[string]string{}
	for i := range 4 {
		b := make([]byte, 4<<20)
		_, _ = random.Read(b)
		sum := sha256.Sum256(b)
		files[fmt.Sprintf("data/%d", i)], sums = string(b), append(sums, hex.EncodeToString(sum[:]))
	}
	archive = filepath.Join(t.TempDir(), "root.tar")
	// The end of an archive is 1,024 bytes of zeros: without it, another archive may follow.
	all := append(raw[:len(raw)-1024:len(raw)-1024], tarOf(t, files)...)
	if err := os.WriteFile(archive, all, 0o600); err != nil {
		t.Fatal(err)
	}
	return archive, sums
}

// TestLazyPull shows that sandboxes of both strong tiers start, and read what they ask for, while
// the rest of their image is still in the registry, and that they outlive a killed daemon then.
func TestLazyPull(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "fuse", filler.Mountable()) // root, too
	host, held, lies, free := holding(t)
	archive, sums := withData(t)
	d := daemontest.Start(t, "--allow-registry", host)
	ok := func(args ...string) string {
		t.Helper()
		out, said, err := run(d, args...)
		if err != nil {
			t.Fatalf("%v: %v %s", args, err, said)
		}
		return out
	}
	ref := host + "/team/data:1"
	ok("template", "import", "whole", archive)
	ok("template", "push", "whole", ref)
	ok("template", "rm", "whole") // or its layer would be here already
	if _, said, err := run(d, "template", "pull", "--lazy", "late", ref); err != nil || !strings.Contains(said, "MB follow") {
		t.Fatalf("pull: %v %s", err, said)
	}
	boxes := map[carrel.Tier]string{carrel.NS: "", carrel.GVisor: ""}
	read := func(file int) {
		t.Helper()
		for tier, id := range boxes {
			if out := ok("exec", id, "--", "sha256sum", fmt.Sprintf("/data/%d", file)); !strings.HasPrefix(out, sums[file]) {
				t.Errorf("%s: file %d is %s, want %s", tier, file, out, sums[file])
			}
		}
	}
	for tier := range boxes {
		boxes[tier] = ok("create", "--template", "late", "--tier", string(tier))
	}
	read(0)
	if held.Load() == 0 {
		t.Error("the background asked for nothing")
	}
	if _, said, err := run(d, "pause", boxes[carrel.GVisor]); err == nil || !strings.Contains(said, "not whole yet") {
		t.Errorf("pause: %v %s", err, said)
	}
	d.Kill9()
	d.Restart()
	read(1)

	// A read of a chunk that is wrong fails, with no byte. It succeeds when the registry is honest.
	lies.Store(true)
	for tier, id := range boxes {
		start := time.Now()
		if out, said, err := run(d, "exec", id, "--", "sha256sum", "/data/2"); err == nil ||
			!strings.Contains(said, "Input/output error") || out != "" {
			t.Errorf("%s: a wrong chunk is read as %q %q after %v", tier, out, said, time.Since(start))
		}
	}
	lies.Store(false)
	read(2)

	free()
	daemontest.Eventually(t, time.Minute, "the image is whole", func() bool {
		return !strings.Contains(ok("template", "show", "late", "--json"), `"lazy"`)
	})
	read(3)
	ok("pause", boxes[carrel.GVisor])
	ok("resume", boxes[carrel.GVisor])
	boxes["new"] = ok("create", "--template", "late", "--tier", "ns")
	read(3)
}
