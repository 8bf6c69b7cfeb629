package web

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// transfer is the work for one URL, from request to output.
type transfer struct {
	c       *curl
	cfg     *config
	raw     string
	u       *url.URL
	method  string
	body    []byte
	hasBody bool
	kind    string // of the body
	upload  string
	out     output
	vals    []string
	started time.Time
	first   time.Duration // to the answer
	resp    *tool.Response
	n       int64 // bytes of the body
	heads   int   // bytes of headers
	hops    int
	next    string // the target of a redirect that was not followed
	name    string // of the file written
	resume  int64
	origin  string // host that credentials are for
	err     *failure
}

// group runs the transfers of one group of options.
func (c *curl) group() int {
	cfg := c.config
	if len(cfg.urls) == 0 {
		fmt.Fprint(c.Err, "curl: no URL specified!\ncurl: try 'curl --help' or 'curl --manual' for more information\n")
		return errUsage
	}
	if c.jar == nil && (cfg.jar != "" || len(cfg.cookies) > 0) {
		c.jar = &jar{}
	}
	for _, b := range cfg.cookies {
		if !strings.Contains(b, "=") {
			c.jar.read(c.Call, b)
		}
	}
	status, n := 0, 0
	for i, raw := range cfg.urls {
		all := []expanded{{url: raw}}
		var err error
		if !cfg.globOff {
			if all, err = glob(raw); err != nil {
				f := reason(err, "", "")
				status = f.code
				c.say(cfg, f)
				continue
			}
		}
		var out output
		if i < len(cfg.outputs) {
			out = cfg.outputs[i]
		} else if cfg.remoteAll {
			out.remote = true
		}
		for _, x := range all {
			if n++; !c.Step(100) {
				return errWrite
			}
			t := &transfer{c: c, cfg: cfg, raw: x.url, out: out, vals: x.vals}
			if i < len(cfg.uploads) {
				t.upload = cfg.uploads[i]
			}
			if s := t.run(); s != 0 {
				if status = s; cfg.failEarly {
					return status
				}
			}
		}
	}
	if cfg.jar != "" {
		c.save(cfg.jar)
	}
	return status
}

func (c *curl) save(name string) {
	text := c.jar.text(c.Now())
	if name == "-" {
		_, _ = io.WriteString(c.Out, text) // nobody reads any more
		return
	}
	f, err := c.Open(name, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o600)
	if err != nil {
		return
	}
	_, _ = io.WriteString(f, text) // curl does not say so either
	_ = f.Close()
}

// say writes a message, except in silent mode.
func (c *curl) say(cfg *config, f *failure) {
	if (!cfg.silent || cfg.showError) && f.text != "" {
		fmt.Fprintf(c.Err, "curl: (%d) %s\n", f.code, f.text)
	}
}

// run runs the transfer, and repeats it as --retry says.
func (t *transfer) run() int {
	delay := time.Second
	begin := t.c.Now()
	for try := 0; ; try++ {
		t.started = t.c.Now()
		err := t.once()
		t.err = nil
		if err != nil {
			if t.c.Stopped(err) {
				return errWrite
			}
			host, port := "", ""
			if t.u != nil {
				host, port = t.u.Hostname(), portOf(t.u)
			}
			if t.err = reason(err, host, port); t.err.code == errTimeout && t.cfg.maxTime > 0 && t.err.text == "Connection timed out" {
				t.err.text = fmt.Sprintf("Operation timed out after %d milliseconds with %d bytes received", t.c.Now().Sub(t.started).Milliseconds(), t.n)
			}
		}
		if try >= t.cfg.retry || !t.again() {
			break
		}
		wait := delay
		if t.cfg.retryDelay > 0 {
			wait = t.cfg.retryDelay
		}
		if t.resp != nil {
			if n, err := strconv.Atoi(first(t.resp.Header, "Retry-After")); err == nil && n >= 0 && n < 1e6 {
				wait = time.Duration(n) * time.Second
			}
		}
		delay = min(2*delay, 10*time.Minute)
		if t.cfg.retryMax > 0 && t.c.Now().Sub(begin)+wait > t.cfg.retryMax {
			break
		}
		if !t.cfg.silent {
			fmt.Fprintf(t.c.Err, "Warning: Problem: %s. Will retry in %d seconds. %d retries left.\n", t.problem(), int(wait.Seconds()), t.cfg.retry-try)
		}
		if !t.c.Sleep(wait) {
			return errWrite
		}
	}
	status := 0
	if t.err != nil {
		status = t.err.code
		t.c.say(t.cfg, t.err)
		if t.cfg.removeOnError && t.name != "" {
			_ = t.c.FS().Remove(t.c.Abs(t.name)) // it may not be there
		}
	}
	if t.cfg.writeOut != "" {
		t.writeOut(t.cfg.writeOut, status)
	}
	return status
}

func (t *transfer) problem() string {
	if t.err != nil && t.err.code != errReturned {
		return "(" + strconv.Itoa(t.err.code) + ") " + t.err.text
	}
	return "HTTP error"
}

// again reports whether the failure may be temporary.
func (t *transfer) again() bool {
	if t.err != nil && t.err.code != errReturned {
		return t.err.code == errTimeout || t.cfg.retryAll || t.cfg.retryRefused && t.err.code == errConnect && !strings.Contains(t.err.text, "policy")
	}
	if t.resp == nil {
		return false
	}
	return slices.Contains([]int{408, 429, 500, 502, 503, 504}, t.resp.Status) || t.cfg.retryAll && t.err != nil
}

// once runs the transfer once: all hops, and the body of the last one.
func (t *transfer) once() error {
	t.hops, t.n, t.heads, t.resp, t.next = 0, 0, 0, nil, ""
	if err := t.prepare(); err != nil {
		return err
	}
	if err := t.target(); err != nil {
		return err
	}
	if t.u.Scheme == "file" {
		return t.local()
	}
	way := t.c.HTTP()
	if way == nil {
		return fail(errResolve, "Could not resolve host: %s (%s)", t.u.Hostname(), noWay)
	}
	ctx := t.c.Ctx
	limit := t.cfg.maxTime
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	for {
		req := &tool.Request{Method: t.method, URL: bare(t.u), Header: t.headers(), Insecure: t.cfg.insecure}
		if t.hasBody {
			req.Body, req.Length = bytes.NewReader(t.body), int64(len(t.body))
		}
		t.showRequest(req)
		resp, err := t.send(ctx, way, req)
		if err != nil {
			return err
		}
		t.resp = resp
		t.first = t.c.Now().Sub(t.started)
		if t.c.jar != nil {
			for k, vs := range resp.Header {
				if strings.EqualFold(k, "Set-Cookie") {
					for _, v := range vs {
						t.c.jar.set(v, t.u.Hostname(), t.u.Path, t.u.Scheme == "https", t.c.Now())
					}
				}
			}
		}
		next, err := t.redirect(resp)
		if err == nil && next != nil && t.cfg.location {
			err = t.showHeaders(resp)
			_, _ = io.CopyN(io.Discard, resp.Body, 1<<20) // of no interest
			_ = resp.Body.Close()
			if err == nil {
				err = t.follow(next)
			}
			if err != nil {
				return err
			}
			continue
		}
		if err == nil {
			if next != nil {
				t.next = next.String()
			}
			err = t.receive(resp)
		}
		_ = resp.Body.Close() // it was read
		return err
	}
}

// send sends a request. --connect-timeout applies until the answer begins.
func (t *transfer) send(ctx context.Context, way tool.HTTP, req *tool.Request) (*tool.Response, error) {
	if t.cfg.connectTime == 0 {
		return way.Do(ctx, req)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(t.cfg.connectTime, func() { cancel(context.DeadlineExceeded) })
	resp, err := way.Do(ctx, req)
	stopped := timer.Stop()
	if err != nil {
		cancel(nil)
		if !stopped && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			return nil, fail(errTimeout, "Failed to connect to %s port %s after %d ms: Timeout was reached", t.u.Hostname(), portOf(t.u), t.cfg.connectTime.Milliseconds())
		}
	}
	return resp, err
}

// bare returns a URL without its user and fragment.
func bare(u *url.URL) string {
	v := *u
	v.User, v.Fragment, v.RawFragment = nil, "", ""
	return v.String()
}

// redirect returns the target of a redirect, or nil for other answers.
func (t *transfer) redirect(resp *tool.Response) (*url.URL, error) {
	if resp.Status < 300 || resp.Status > 399 || resp.Status == 304 {
		return nil, nil
	}
	where := first(resp.Header, "Location")
	if where == "" {
		return nil, nil
	}
	next, err := t.u.Parse(strings.ReplaceAll(where, " ", "%20"))
	if err != nil {
		return nil, nil
	}
	return next, nil
}

// follow goes to the next hop.
func (t *transfer) follow(next *url.URL) error {
	if t.cfg.maxRedir >= 0 && t.hops >= t.cfg.maxRedir {
		return fail(errRedirects, "Maximum (%d) redirects followed", t.cfg.maxRedir)
	}
	t.hops++
	if next.Scheme != "http" && next.Scheme != "https" {
		return fail(errProtocol, "Protocol \"%s\" not supported or disabled in libcurl", next.Scheme)
	}
	if next.Path == "" {
		next.Path = "/"
	}
	status := t.resp.Status
	if t.hasBody && (status == 301 || status == 302 || status == 303) && !t.cfg.keep[status] || status == 303 && !t.cfg.keep[303] && t.method != "HEAD" {
		if t.method == "POST" || t.cfg.method == "" {
			t.method = "GET"
		}
		if t.cfg.method != "" {
			t.method = t.cfg.method
		}
		if t.cfg.head {
			t.method = "HEAD"
		}
		t.hasBody = false
	}
	if t.cfg.autoRef {
		t.cfg.referer = bare(t.u)
	}
	if t.u.User != nil && next.User == nil && next.Host == t.u.Host {
		next.User = t.u.User
	}
	if t.cfg.verbose {
		fmt.Fprintf(t.c.Err, "* Issue another request to this URL: '%s'\n", next)
	}
	t.u = next
	return nil
}

// local is a file:// URL.
func (t *transfer) local() error {
	f, err := t.c.Open(t.u.Path, vfs.ReadOnly, 0)
	if err != nil {
		return fail(errFile, "Couldn't open file %s", t.u.Path)
	}
	defer func() { _ = f.Close() }() // it was read
	t.resp = &tool.Response{Status: 0, Body: f}
	return t.copy(f)
}

// decoded decodes a body whose encoding the request has asked for.
func (t *transfer) decoded(resp *tool.Response) (io.Reader, error) {
	body := &paidReader{c: t.c.Call, r: resp.Body}
	if !t.cfg.compressed {
		return body, nil
	}
	switch strings.ToLower(first(resp.Header, "Content-Encoding")) {
	case "gzip", "x-gzip":
		r, err := gzip.NewReader(body)
		if err != nil {
			return nil, fail(errEncoding, "Error while processing content unencoding: %v", err)
		}
		return r, nil
	case "deflate":
		return flate.NewReader(body), nil
	}
	return body, nil
}
