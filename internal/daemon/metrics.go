package daemon

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/metrics"
	"github.com/carrel-dev/carrel/internal/openapi"
	"github.com/carrel-dev/carrel/internal/version"
)

// figures are the daemon's metrics and the doors' counts.
type figures struct {
	all    *metrics.Metrics
	api    *metrics.Requests
	visits *metrics.Requests

	listener net.Listener // of the scrapers that need no key; nil for none
	server   *http.Server
}

// openMetrics makes the figures. The parts do not count yet.
func (d *Daemon) openMetrics() error {
	m := metrics.New(version.Version)
	d.figures = figures{all: m,
		api:    m.Requests(metrics.APIRequests, metrics.APIDuration, operationOf),
		visits: m.Requests(metrics.GatewayRequests, metrics.GatewayDuration, func(call string) string { return call })}
	if d.cfg.MetricsListen == "" {
		return nil
	}
	l, err := net.Listen("tcp", d.cfg.MetricsListen)
	if err != nil {
		return &carrel.Error{Op: "listen", Kind: carrel.Unavailable, Field: "metrics-listen", Err: err,
			Hint: "another program has this address; choose one with --metrics-listen"}
	}
	d.own.add(l.Addr().String()) // no sandbox reaches it as a service of this machine
	d.figures.listener = newLimitListener(l, scrapers)
	d.figures.server = &http.Server{Handler: scraped(m.Handler(), l.Addr()), ReadHeaderTimeout: headerTime,
		ReadTimeout: headerTime, WriteTimeout: 2 * headerTime, IdleTimeout: idleTime, MaxHeaderBytes: headerBytes}
	d.undo.Add(func() { _ = d.figures.server.Close(); _ = d.figures.listener.Close() })
	return nil
}

// scrapers is how many connections scrapers may have open.
const scrapers = 32

// operationOf names a route of the API as its description does. Requests without one are "none".
func operationOf(route string) string {
	if !strings.Contains(route, "/") {
		return "none"
	}
	return openapi.OperationID(route)
}

// serveMetrics serves scrapers that need no key until ctx ends.
func (d *Daemon) serveMetrics(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = d.figures.server.Close() })()
	d.log.Info("metrics", "url", "http://"+d.figures.listener.Addr().String()+"/metrics")
	if err := d.figures.server.Serve(d.figures.listener); !errors.Is(err, http.ErrServerClosed) {
		d.log.Error("metrics are not served any more", "err", err)
	}
}

// scraped answers scrapers at /metrics and nobody elsewhere. On loopback, the request must name this
// machine: a page in a browser here could otherwise read the figures by giving its own name this
// machine's address.
func scraped(next http.Handler, addr net.Addr) http.Handler {
	tcp, ok := addr.(*net.TCPAddr)
	private := ok && tcp.IP.IsLoopback()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case private && !ownHost(r.Host):
			http.Error(w, "this address is not for the host of that name", http.StatusMisdirectedRequest)
		case r.URL.Path != "/metrics":
			http.NotFound(w, r)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// ownHost reports whether a request's host is a loopback address, or localhost.
func ownHost(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	ip := net.ParseIP(name)
	return strings.EqualFold(name, "localhost") || ip != nil && ip.IsLoopback()
}

// ended counts an operation on a sandbox.
func ended(o *metrics.Operations) func(string, time.Duration, error) {
	return func(name string, took time.Duration, err error) { o.Ended(name, took, err != nil) }
}
