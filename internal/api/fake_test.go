package api

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// fake is a service made of functions; one that is missing is never called.
type fake struct {
	carrel.Service
	create     func(carrel.CreateOptions) (carrel.Sandbox, error)
	get        func(carrel.ID) (carrel.Sandbox, error)
	list       func(carrel.ListOptions) (carrel.Page, error)
	kill       func(carrel.ID) error
	setTimeout func(carrel.ID, time.Duration, bool) (carrel.Sandbox, error)
	setNetwork func(carrel.ID, carrel.Network) (carrel.Sandbox, error)
	computer   func(carrel.ID) (carrel.Computer, error)
	metrics    func(carrel.ID, time.Time, time.Time) ([]carrel.Metric, error)
	logs       func(carrel.ID, carrel.LogOptions) ([]carrel.LogEntry, error)
	events     func(context.Context, int64) iter.Seq2[carrel.Event, error]
	templates  []carrel.Template
	imported   func(string, io.Reader, func(carrel.Progress)) (carrel.Template, error)
	deleted    func(string) error
}

func (f *fake) Create(_ context.Context, o carrel.CreateOptions) (carrel.Sandbox, error) {
	return f.create(o)
}
func (f *fake) Get(_ context.Context, id carrel.ID) (carrel.Sandbox, error) { return f.get(id) }
func (f *fake) List(_ context.Context, o carrel.ListOptions) (carrel.Page, error) {
	return f.list(o)
}
func (f *fake) Kill(_ context.Context, id carrel.ID) error { return f.kill(id) }
func (f *fake) SetTimeout(_ context.Context, id carrel.ID, d time.Duration, extend bool) (carrel.Sandbox, error) {
	return f.setTimeout(id, d, extend)
}
func (f *fake) SetNetwork(_ context.Context, id carrel.ID, n carrel.Network) (carrel.Sandbox, error) {
	return f.setNetwork(id, n)
}
func (f *fake) Computer(_ context.Context, id carrel.ID) (carrel.Computer, error) {
	return f.computer(id)
}
func (f *fake) Metrics(_ context.Context, id carrel.ID, from, to time.Time) ([]carrel.Metric, error) {
	return f.metrics(id, from, to)
}
func (f *fake) Logs(_ context.Context, id carrel.ID, o carrel.LogOptions) ([]carrel.LogEntry, error) {
	return f.logs(id, o)
}
func (f *fake) Events(ctx context.Context, after int64) iter.Seq2[carrel.Event, error] {
	return f.events(ctx, after)
}
func (f *fake) ListTemplates(context.Context) ([]carrel.Template, error) { return f.templates, nil }
func (f *fake) GetTemplate(_ context.Context, name string) (carrel.Template, error) {
	for _, t := range f.templates {
		if t.ID == name || t.Name == name {
			return t, nil
		}
	}
	return carrel.Template{}, &carrel.Error{Op: "get template", Kind: carrel.NotFound}
}
func (f *fake) ImportTemplate(_ context.Context, name string, r io.Reader, p func(carrel.Progress)) (carrel.Template, error) {
	return f.imported(name, r, p)
}
func (f *fake) DeleteTemplate(_ context.Context, name string) error { return f.deleted(name) }

const (
	testKey = "e2b_0123456789abcdef"
	boxID   = "i0123456789abcdefghij"
	otherID = "i00000000000000000000"
)

// box is the one sandbox there is.
var box = carrel.Sandbox{
	ID: boxID, Template: "tpl1", Alias: "base", Tier: carrel.Sim, State: carrel.Running,
	Limits:   carrel.Limits{CPUs: 1.5, MemoryMB: 512, DiskMB: 1024, Pids: 100},
	Metadata: map[string]string{"a": "b"}, Network: carrel.Network{Internet: true},
	Started: time.Date(2026, 1, 2, 3, 4, 5, 6000000, time.UTC), Ends: time.Date(2026, 1, 2, 3, 9, 5, 0, time.UTC),
	AccessToken: "tok", EnvdVersion: carrel.EnvdVersion,
}

// newFake has box and one template, and refuses everything else as a service would.
func newFake() *fake {
	missing := func(id carrel.ID) error {
		return &carrel.Error{Op: "get sandbox", Kind: carrel.NotFound, ID: id}
	}
	f := &fake{templates: []carrel.Template{{ID: "tpl1", Name: "base", Created: box.Started, BuiltIn: true}}}
	f.get = func(id carrel.ID) (carrel.Sandbox, error) {
		if id != box.ID {
			return carrel.Sandbox{}, missing(id)
		}
		return box, nil
	}
	f.create = func(o carrel.CreateOptions) (carrel.Sandbox, error) {
		if o.Template != "" && o.Template != "base" {
			return carrel.Sandbox{}, &carrel.Error{Op: "create sandbox", Kind: carrel.NotFound, Field: "template"}
		}
		sb := box
		sb.Metadata, sb.Network = o.Metadata, o.Network
		if o.Insecure {
			sb.AccessToken = ""
		}
		if o.Network.PrivateTraffic {
			sb.TrafficToken = "traffic"
		}
		return sb, nil
	}
	f.kill = func(id carrel.ID) error { _, err := f.get(id); return err }
	f.setTimeout = func(id carrel.ID, _ time.Duration, _ bool) (carrel.Sandbox, error) { return f.get(id) }
	f.setNetwork = func(id carrel.ID, _ carrel.Network) (carrel.Sandbox, error) { return f.get(id) }
	f.list = func(carrel.ListOptions) (carrel.Page, error) {
		return carrel.Page{Sandboxes: []carrel.Sandbox{box}, Next: "more", Running: 7}, nil
	}
	f.metrics = func(id carrel.ID, _, _ time.Time) ([]carrel.Metric, error) { _, err := f.get(id); return nil, err }
	f.logs = func(id carrel.ID, _ carrel.LogOptions) ([]carrel.LogEntry, error) {
		_, err := f.get(id)
		return nil, err
	}
	return f
}

// start serves a service's API.
func start(t *testing.T, f *fake, change ...func(*Options)) *httptest.Server {
	t.Helper()
	opts := Options{Service: f, Key: testKey, Version: "v1", Limits: carrel.Limits{CPUs: 2, MemoryMB: 1024, DiskMB: 2048}}
	for _, c := range change {
		c(&opts)
	}
	srv := httptest.NewServer(New(opts))
	t.Cleanup(srv.Close)
	return srv
}

// call sends a request with the key; the body is sent chunked, as E2B's SDKs do.
func call(t *testing.T, srv *httptest.Server, method, path, body string) (*http.Response, string) {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = struct{ io.Reader }{strings.NewReader(body)}
	}
	req, err := http.NewRequest(method, srv.URL+path, r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-KEY", testKey)
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, strings.TrimSpace(string(raw))
}
