package registry_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	pull "github.com/carrel-dev/carrel/internal/image/registry"
)

// cutting is a registry whose big layer is cut off after some bytes, until it is mended.
type cutting struct {
	*odd
	big   string
	cache string
	part  string // of the layer that was cut off
	from  []int  // where the requests for them began
}

// breakOff pulls an image whose layer never comes whole, so that a part of it stays.
func breakOff(t *testing.T) *cutting {
	t.Helper()
	c := &cutting{odd: serveOdd(t), big: noise(3 << 20), cache: filepath.Join(t.TempDir(), "kept")}
	l := layer(t, "big", c.big)
	c.push(t, "app:1", imageOf(t, l))
	digest, err := l.Digest()
	if err != nil {
		t.Fatal(err)
	}
	c.serveBig(func(w http.ResponseWriter, from int, body []byte) {
		if from > 0 { // the first connection brings a part, and then there is nothing more
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body[:2<<20])
		panic(http.ErrAbortHandler)
	})
	if _, _, err := c.fetch(t); err == nil {
		t.Fatal("the layer was whole")
	}
	for _, f := range files(t, c.cache) {
		if strings.HasSuffix(f, digest.Hex+".part") {
			c.part = f
		}
	}
	info, err := os.Stat(c.part)
	if err != nil || info.Size() < 1<<20 {
		t.Fatalf("%v of the layer stayed: %v", files(t, c.cache), err)
	}
	return c
}

// serveBig answers requests for the big layer.
func (c *cutting) serveBig(answer func(w http.ResponseWriter, from int, body []byte)) {
	c.setHook(func(w http.ResponseWriter, r *http.Request) bool {
		code, body := c.body(r)
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") || code != 200 ||
			len(body) < 1<<20 {
			return false
		}
		from := 0
		if text, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok {
			from, _ = strconv.Atoi(strings.TrimSuffix(text, "-"))
		}
		c.mu.Lock()
		c.from = append(c.from, from)
		c.mu.Unlock()
		answer(w, from, body)
		return true
	})
}

// partly sends a layer from an offset on.
func partly(w http.ResponseWriter, from int, body []byte) {
	if from > 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(body)-1, len(body)))
		w.WriteHeader(http.StatusPartialContent)
	}
	_, _ = w.Write(body[from:])
}

// fetch pulls with a new client, as a new process would. It returns the file of the image.
func (c *cutting) fetch(t *testing.T) (big string, from []int, err error) {
	t.Helper()
	c.mu.Lock()
	c.from = nil
	c.mu.Unlock()
	img, _, err := fetch(t, c.host+"/app:1", func(cfg *pull.Config, _ *pull.Request) {
		cfg.Cache = pull.NewCache(c.cache, 0, slog.New(slog.DiscardHandler))
	})
	if err == nil {
		big = content(t, img, "big")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return big, c.from, err
}

// wantWhole checks that a pull gave the right content and left no part.
func (c *cutting) wantWhole(t *testing.T, big string, err error) {
	t.Helper()
	if err != nil || big != c.big {
		t.Errorf("other content: %v", err)
	}
	if _, err := os.Stat(c.part); !os.IsNotExist(err) {
		t.Errorf("the part is still there: %v", err)
	}
}

// TestNextPullGoesOn pulls again after a pull was broken off. Only the rest is asked for.
func TestNextPullGoesOn(t *testing.T) {
	c := breakOff(t)
	info, err := os.Stat(c.part)
	if err != nil {
		t.Fatal(err)
	}
	c.serveBig(partly)
	big, from, err := c.fetch(t)
	c.wantWhole(t, big, err)
	if len(from) != 1 || int64(from[0]) != info.Size() {
		t.Errorf("%d bytes were there, and it was asked from %v on", info.Size(), from)
	}
	// It is kept now.
	if big, from, err := c.fetch(t); err != nil || big != c.big || len(from) != 0 {
		t.Errorf("the kept layer was asked for again: %v %v", from, err)
	}
}

// TestGoingOnWithoutRanges goes on at a registry that ignores Range.
func TestGoingOnWithoutRanges(t *testing.T) {
	c := breakOff(t)
	c.serveBig(func(w http.ResponseWriter, _ int, body []byte) { _, _ = w.Write(body) })
	big, from, err := c.fetch(t)
	c.wantWhole(t, big, err)
	if len(from) != 1 {
		t.Errorf("it was asked from %v on", from)
	}
}

// TestGoingOnIsRefused goes on at a registry that refuses every Range.
func TestGoingOnIsRefused(t *testing.T) {
	c := breakOff(t)
	c.serveBig(func(w http.ResponseWriter, from int, body []byte) {
		if from > 0 {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		_, _ = w.Write(body)
	})
	big, from, err := c.fetch(t)
	c.wantWhole(t, big, err)
	if len(from) != 2 || from[1] != 0 {
		t.Errorf("it was asked from %v on", from)
	}
}

// TestMirrorSpoilsPart lets a mirror send other content and break off. The registry goes on, and
// then sends the whole layer: it is not blamed for the mirror's bytes.
func TestMirrorSpoilsPart(t *testing.T) {
	m, c := &cutting{odd: serveOdd(t)}, &cutting{odd: serveOdd(t), big: noise(3 << 20)}
	img := imageOf(t, layer(t, "big", c.big))
	m.push(t, "cached/app:1", img)
	c.push(t, "app:1", img)
	m.serveBig(func(w http.ResponseWriter, from int, body []byte) {
		if from > 0 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(make([]byte, 2<<20))
		panic(http.ErrAbortHandler)
	})
	c.serveBig(partly)
	got, _, err := fetch(t, c.host+"/app:1", func(cfg *pull.Config, _ *pull.Request) {
		cfg.Mirrors = []pull.Mirror{{c.host, "http://" + m.host + "/cached"}}
	})
	if err != nil || content(t, got, "big") != c.big {
		t.Fatalf("other content: %v", err)
	}
	if len(c.from) != 2 || c.from[0] == 0 || c.from[1] != 0 {
		t.Errorf("the registry was asked from %v on", c.from)
	}
}

// TestPartsAreBounded breaks a pull off whose part alone is too much for the cache. It is removed,
// though no layer was kept meanwhile.
func TestPartsAreBounded(t *testing.T) {
	c := breakOff(t)
	_, _, err := fetch(t, c.host+"/app:1", func(cfg *pull.Config, _ *pull.Request) {
		cfg.Cache = pull.NewCache(c.cache, 1<<20, slog.New(slog.DiscardHandler))
	})
	wantKind(t, err, carrel.NotFound, "")
	if _, err := os.Stat(c.part); !os.IsNotExist(err) {
		t.Errorf("the part is still there: %v", err)
	}
}

// TestDamagedPart changes the part on the disk. The registry is asked for all of the layer, and is
// not blamed.
func TestDamagedPart(t *testing.T) {
	c := breakOff(t)
	raw, err := os.ReadFile(c.part)
	if err != nil {
		t.Fatal(err)
	}
	for what, damaged := range map[string][]byte{"changed": append([]byte{raw[0] ^ 1}, raw[1:]...),
		"longer than the layer": make([]byte, len(c.big)*2), "empty": nil} {
		if err := os.WriteFile(c.part, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		c.serveBig(partly)
		big, from, err := c.fetch(t)
		c.wantWhole(t, big, err)
		if last := len(from) - 1; last < 0 || from[last] != 0 {
			t.Errorf("%s: it was asked from %v on", what, from)
		}
		for _, f := range files(t, c.cache) {
			_ = os.Remove(f)
		}
	}
}

// TestRestFromAnotherPlace sends bytes from another place than the one that was asked for. None of
// them is taken.
func TestRestFromAnotherPlace(t *testing.T) {
	c := breakOff(t)
	c.serveBig(func(w http.ResponseWriter, from int, body []byte) {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from/2, len(body)-1, len(body)))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(body[from/2:])
	})
	big, from, err := c.fetch(t)
	c.wantWhole(t, big, err)
	if len(from) != 2 || from[0] == 0 || from[1] != 0 {
		t.Errorf("it was asked from %v on", from)
	}
}

// TestRegistryLiesOnTheRest sends other content than it should for the rest of a layer. The pull
// fails and blames the registry, and nothing of the layer stays.
func TestRegistryLiesOnTheRest(t *testing.T) {
	for what, answer := range map[string]func(w http.ResponseWriter, from int, body []byte){
		"another blob": func(w http.ResponseWriter, from int, body []byte) {
			other := []byte(strings.Repeat("x", len(body)))
			partly(w, from, other)
		},
		"a longer one": func(w http.ResponseWriter, from int, body []byte) {
			partly(w, from, append(append([]byte{}, body...), "more"...))
		},
	} {
		t.Run(what, func(t *testing.T) {
			c := breakOff(t)
			c.serveBig(answer)
			_, _, err := c.fetch(t)
			wantKind(t, err, carrel.Invalid, "")
			if _, err := os.Stat(c.part); !os.IsNotExist(err) {
				t.Errorf("the part is still there: %v", err)
			}
			// The registry is mended: the layer comes from its beginning.
			c.serveBig(partly)
			big, from, err := c.fetch(t)
			c.wantWhole(t, big, err)
			if len(from) != 1 || from[0] != 0 {
				t.Errorf("it was asked from %v on", from)
			}
		})
	}
}

// TestShortRest says a length that it does not send. The pull fails, and the part is as good as
// before.
func TestShortRest(t *testing.T) {
	c := breakOff(t)
	asked := 0
	c.serveBig(func(w http.ResponseWriter, from int, body []byte) {
		if asked++; asked > 1 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(body)-1, len(body)))
		w.WriteHeader(http.StatusPartialContent) // and nothing more
	})
	_, _, err := c.fetch(t)
	wantKind(t, err, carrel.NotFound, "")
	if asked != 2 {
		t.Errorf("it was asked %d times", asked)
	}
	c.serveBig(partly)
	big, from, err := c.fetch(t)
	c.wantWhole(t, big, err)
	if len(from) != 1 || from[0] < 1<<20 {
		t.Errorf("it was asked from %v on", from)
	}
}

// TestOldPartsGo pulls something else days later. The part that nobody went on with is removed, a
// young one stays.
func TestOldPartsGo(t *testing.T) {
	c := breakOff(t)
	c.setHook(nil)
	c.push(t, "other:1", imageOf(t, layer(t, "small", "x")))
	pullOther := func() {
		t.Helper()
		for _, f := range files(t, c.cache) { // so that the layer is downloaded each time
			if f != c.part {
				_ = os.Remove(f)
			}
		}
		if _, _, err := fetch(t, c.host+"/other:1", func(cfg *pull.Config, _ *pull.Request) {
			cfg.Cache = pull.NewCache(c.cache, 0, slog.New(slog.DiscardHandler))
		}); err != nil {
			t.Fatal(err)
		}
	}
	pullOther()
	if _, err := os.Stat(c.part); err != nil {
		t.Errorf("a young part went: %v", err)
	}
	old := time.Now().Add(-4 * 24 * time.Hour)
	if err := os.Chtimes(c.part, old, old); err != nil {
		t.Fatal(err)
	}
	pullOther()
	if _, err := os.Stat(c.part); !os.IsNotExist(err) {
		t.Errorf("an old part stays: %v", err)
	}
}
