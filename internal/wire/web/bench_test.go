package web_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/pki"
)

// benchHandler answers 2 KiB of JSON.
func benchHandler(text []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	})
}

func benchText(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = "{\"answer\": 42, \"text\": \"some words\"} "[i%37]
	}
	return b
}

// benchGet measures requests to an address over kept connections.
func benchGet(b *testing.B, to string, ca *pki.CA, size int64, h2 bool) {
	var protocols http.Protocols
	protocols.SetHTTP1(!h2)
	protocols.SetHTTP2(h2)
	tr := &http.Transport{
		Protocols: &protocols, TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}, DisableCompression: true, MaxIdleConnsPerHost: 64,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", to)
		},
	}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr}
	b.SetParallelism(8)
	b.ReportAllocs()
	b.SetBytes(size)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			req, _ := http.NewRequest("GET", "https://"+host+"/v1/models?limit=1", nil)
			req.Header.Set("Authorization", "Bearer placeholder")
			req.Header.Set("Accept", "application/json")
			req.Header.Set("User-Agent", "bench")
			res, err := c.Do(req)
			if err != nil {
				b.Error(err)
				return
			}
			n, err := io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if err != nil || n != size || res.StatusCode != 200 {
				b.Error(n, res.Status, err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
}

func benchSizes(b *testing.B, f func(b *testing.B, text []byte, h2 bool)) {
	for _, c := range []struct {
		name string
		size int
		h2   bool
	}{{"small", 2 << 10, false}, {"large", 1 << 20, false}, {"small-http2", 2 << 10, true}} {
		b.Run(c.name, func(b *testing.B) { f(b, benchText(c.size), c.h2) })
	}
}

func BenchmarkDirect(b *testing.B) {
	benchSizes(b, func(b *testing.B, text []byte, h2 bool) {
		s, ca := outsideServer(b, true, benchHandler(text))
		benchGet(b, s.Listener.Addr().String(), ca, int64(len(text)), h2)
	})
}

func BenchmarkInjected(b *testing.B) {
	benchSizes(b, func(b *testing.B, text []byte, h2 bool) {
		s, ca := outsideServer(b, true, benchHandler(text))
		r := newRig(b, s.Listener.Addr(), true, ca)
		r.quiet = true
		r.inject(carrel.Injection{Host: host, Bearer: "key"})
		benchGet(b, r.listener.Addr().String(), r.inside, int64(len(text)), h2)
	})
}
