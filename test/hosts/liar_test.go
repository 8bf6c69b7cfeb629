package hosts

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// liarPort is where fronts reach the node that lies.
const liarPort = 7443

// TestLiar has a node say that nothing runs on it and all of its memory is free. It gets its share and
// not much more.
func TestLiar(t *testing.T) {
	testenv.Long(t, "a fleet of eight, one of which lies")
	const n, nodes = 240, 8
	m := start(t, options{fronts: 1, nodes: nodes, liar: true})
	m.many(n, carrel.CreateOptions{})
	// Two choices show it to a quarter of the sandboxes, which is 60.
	if got := m.stateOf(0).Running; got < 1 || got > 100 {
		t.Errorf("the node that lies has %d of %d", got, n)
	}
	for i := 1; i < nodes; i++ {
		if m.stateOf(i).Running == 0 {
			t.Errorf("node %d has nothing", i)
		}
	}
}

// lie serves fronts as node 0, with the node's own key. Only the report of its load is another.
func (m *machines) lie() {
	t := m.t
	t.Helper()
	node := m.nodes[0]
	dir := filepath.Join(node.Dir, "fleet")
	var pair tls.Certificate
	testenv.EventuallyNil(t, "the node has a certificate", func() (err error) {
		pair, err = tls.LoadX509KeyPair(filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem"))
		return err
	})
	to, err := url.Parse(node.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	proxy.ModifyResponse = func(r *http.Response) error {
		if !strings.HasSuffix(r.Request.URL.Path, "/admission") {
			return nil
		}
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		var report map[string]any
		if err := json.Unmarshal(raw, &report); err != nil {
			return err
		}
		machine := report["machine"].(map[string]any)
		machine["memory"], machine["disk"] = machine["memoryTotal"], machine["diskTotal"]
		report["starting"], report["createsWaiting"], report["wakesWaiting"], report["waitMs"] = 0, 0, 0, 0
		if raw, err = json.Marshal(report); err != nil {
			return err
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
		r.Header.Set("Content-Length", strconv.Itoa(len(raw)))
		return nil
	}
	l, err := node.host.Listen(liarPort)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: proxy, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(l, "", "")
	}()
	t.Cleanup(func() { _ = server.Close(); <-done })
}
