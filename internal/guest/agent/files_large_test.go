package agent_test

import (
	"crypto/sha256"
	"hash"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/guest/agent"
)

// largeSize is 1 GiB, or 80 MiB in short tests, which run under the race detector.
func largeSize() int64 {
	if testing.Short() {
		return 80 << 20
	}
	return 1 << 30
}

// source gives n bytes that repeat with a period that is no power of two. It hashes them if asked
// to.
type source struct {
	left int64
	at   int
	sum  hash.Hash
}

// pattern is the text that a source repeats.
var pattern = []byte(strings.Repeat("carrel, a small private desk; ", 34953)) // 1 MiB and a bit

func (s *source) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(int64(len(p)), s.left)], pattern[s.at:])
	s.at = (s.at + n) % len(pattern)
	s.left -= int64(n)
	if s.sum != nil {
		s.sum.Write(p[:n])
	}
	return n, nil
}

// heapPeak measures the heap while fn runs, and reports its largest growth.
func heapPeak(fn func()) uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before := m.HeapInuse
	var peak atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak.Store(max(peak.Load(), m.HeapInuse))
			}
		}
	}()
	fn()
	close(stop)
	<-stopped
	if p := peak.Load(); p > before {
		return p - before
	}
	return 0
}

// sink is a file that counts written bytes and keeps nothing. A gigabyte on this machine's disk
// would show nothing about memory.
type sink struct {
	agent.File
	written *int64
	writes  *int
}

func (f sink) Write(p []byte) (int, error) {
	*f.written += int64(len(p))
	*f.writes++
	return len(p), nil
}

// TestLargeFilesInConstantMemory moves a gigabyte in and out, in each form, and
// bounds the memory of client and guest together.
func TestLargeFilesInConstantMemory(t *testing.T) {
	size := largeSize()
	d := newDisk(t)
	measure := func(what string, fn func()) {
		t.Helper()
		start := time.Now()
		peak := heapPeak(fn)
		t.Logf("%s: %d MiB at %.0f MB/s, heap +%.1f MiB", what, size>>20, float64(size)/1e6/time.Since(start).Seconds(), float64(peak)/(1<<20))
		if peak > 24<<20 {
			t.Errorf("%s took %d MiB of memory", what, peak>>20)
		}
	}
	upload := func(what, target string, h http.Header, body io.Reader) {
		t.Helper()
		var written int64
		var writes int
		d.sys.create = func(f agent.File) agent.File { return sink{f, &written, &writes} }
		measure(what, func() { d.filesOf(d.call("POST", target, h, body)) })
		if written != size || writes > int(size>>20)+1 {
			t.Errorf("%s: %d bytes in %d writes", what, written, writes)
		}
	}
	upload("upload as the body", query("path", "big"), octets(), &source{left: size})
	head := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"big\"\r\n\r\n"
	form := io.MultiReader(strings.NewReader(head), &source{left: size}, strings.NewReader("\r\n--b--\r\n"))
	upload("upload in a form", "/files", http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}, form)

	must(t, os.Truncate(d.path("big"), size)) // a hole: it takes no disk
	for _, accept := range []string{"identity", "gzip"} {
		measure("download, "+accept, func() {
			req, err := http.NewRequest("GET", d.url+query("path", "big"), nil)
			must(t, err)
			if accept != "gzip" { // Go's client asks for gzip and undoes it by itself
				req.Header.Set("Accept-Encoding", accept)
			}
			resp, err := http.DefaultClient.Do(req)
			must(t, err)
			defer resp.Body.Close()
			n, err := io.Copy(io.Discard, resp.Body)
			if err != nil || n != size || resp.Uncompressed != (accept == "gzip") {
				t.Errorf("%d bytes came back, %v, uncompressed %v", n, err, resp.Uncompressed)
			}
		})
	}
}

// TestLargeFileComesBack moves many chunks to a real disk and back.
func TestLargeFileComesBack(t *testing.T) {
	d := newDisk(t)
	src := &source{left: 40<<20 + 12345, sum: sha256.New()}
	d.filesOf(d.call("POST", query("path", "big"), octets(), src))
	for _, accept := range []string{"identity", "gzip"} {
		a := d.call("GET", query("path", "big"), http.Header{"Accept-Encoding": {accept}}, nil)
		if accept == "gzip" {
			a.body = gunzipped(t, a.body)
		}
		if sha256.Sum256([]byte(a.body)) != [32]byte(src.sum.Sum(nil)) {
			t.Errorf("%s: %d bytes came back, not the same", accept, len(a.body))
		}
	}
}
