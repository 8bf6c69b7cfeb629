package member

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/fleet/certificate"
)

const (
	callTime = 5 * time.Second // for one front to answer
	dialTime = 2 * time.Second
)

// caller calls fronts. Any of them will do: it stays with the one that answered last.
type caller struct {
	urls []*url.URL

	mu   sync.Mutex
	last int // the one that answered
	http *http.Client
}

// newCaller reads the fronts' addresses. Error: Invalid.
func newCaller(urls []string) (*caller, error) {
	c := &caller{}
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil {
			return nil, &carrel.Error{Op: "join fleet", Kind: carrel.Invalid, Field: "join",
				Err:  fmt.Errorf("%.100q is not the address of a front", text),
				Hint: "it looks like https://front.example.com:7071, the front's --nodes-listen"}
		}
		u.Path = ""
		c.urls = append(c.urls, u)
	}
	if len(c.urls) == 0 {
		return nil, &carrel.Error{Op: "join fleet", Kind: carrel.Invalid, Field: "join", Err: errors.New("no front is named")}
	}
	return c, nil
}

// use makes later calls with a configuration for TLS.
func (c *caller) use(cfg *tls.Config) {
	pool := &http.Transport{TLSClientConfig: cfg, DialContext: (&net.Dialer{Timeout: dialTime}).DialContext,
		TLSHandshakeTimeout: dialTime, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
	c.http = &http.Client{Transport: pool, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// close drops idle connections.
func (c *caller) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
}

// each calls fn with one front after the other, from the last that answered on, until one answers.
func (c *caller) each(fn func(u *url.URL) error) error {
	c.mu.Lock()
	first := c.last
	c.mu.Unlock()
	var errs []error
	for i := range c.urls {
		at := (first + i) % len(c.urls)
		err := fn(c.urls[at])
		if err == nil || answered(err) {
			c.mu.Lock()
			c.last = at
			c.mu.Unlock()
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// answered reports whether an error is a front's own, so that another would say the same.
func answered(err error) bool {
	var a *refusal
	return errors.As(err, &a) && carrel.KindOf(err) != carrel.Unavailable
}

// refusal is what a front answered instead of what was asked for.
type refusal struct{ m fleet.ErrorMessage }

func (r *refusal) Error() string { return r.m.Error }

// Is implements the interface of errors.Is for the reasons that travel.
func (r *refusal) Is(target error) bool {
	return target == fleet.ErrFenced && r.m.Fenced || target == fleet.ErrHeld && r.m.Held
}

// call sends a message to a front, and reads its answer.
func call[T any](ctx context.Context, c *caller, op, path string, id carrel.ID, message any) (out T, err error) {
	raw, err := json.Marshal(message)
	if err != nil {
		return out, &carrel.Error{Op: op, Kind: carrel.Internal, ID: id, Err: err}
	}
	err = c.each(func(u *url.URL) error { return c.post(ctx, op, path, id, u, raw, &out) })
	return out, err
}

// post sends a message to one front, and reads its answer.
func (c *caller) post(ctx context.Context, op, path string, id carrel.ID, u *url.URL, raw []byte, out any) error {
	c.mu.Lock()
	client := c.http
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String()+path, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return unreached(op, id, u, err)
	}
	defer resp.Body.Close()
	return readAnswer(op, id, u, resp, out)
}

const (
	raceAfter = 700 * time.Millisecond // without an answer, the next try starts
	raceTries = 4
)

// raced is call for a message that may arrive twice. It does not wait for a front that is slow to
// answer, or for a connection that has lost something: it also asks the next front, or the same one
// by another connection. The first answer counts.
func raced[T any](ctx context.Context, c *caller, op, path string, id carrel.ID, message any) (T, error) {
	var none T
	raw, err := json.Marshal(message)
	if err != nil {
		return none, &carrel.Error{Op: op, Kind: carrel.Internal, ID: id, Err: err}
	}
	type answer struct {
		out T
		at  int
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	first := c.last
	c.mu.Unlock()
	answers := make(chan answer, raceTries) // room for those that nobody waits for
	begin := func(try int) {
		a := answer{at: (first + try) % len(c.urls)}
		a.err = c.post(ctx, op, path, id, c.urls[a.at], raw, &a.out)
		answers <- a
	}
	started, open := 1, 1
	go begin(0)
	next := time.NewTicker(raceAfter)
	defer next.Stop()
	var errs []error
	for open > 0 {
		more := false
		select {
		case a := <-answers:
			if open--; a.err == nil || answered(a.err) {
				c.mu.Lock()
				c.last = a.at
				c.mu.Unlock()
				return a.out, a.err
			}
			errs = append(errs, a.err)
			more = started < len(c.urls) // another front may be there
		case <-next.C:
			more = started < raceTries
		}
		if more {
			go begin(started)
			started, open = started+1, open+1
		}
	}
	return none, errors.Join(errs...)
}

func unreached(op string, id carrel.ID, u *url.URL, err error) error {
	return &carrel.Error{Op: op, Kind: carrel.Unavailable, ID: id, Err: fmt.Errorf("the front at %s: %w", u.Host, err),
		Hint: "is a front running there, and can this machine reach its --nodes-listen?"}
}

// readAnswer reads a front's answer.
func readAnswer(op string, id carrel.ID, u *url.URL, resp *http.Response, out any) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, fleet.MaxMessage+1))
	switch {
	case err != nil:
		return unreached(op, id, u, err)
	case len(body) > fleet.MaxMessage:
		return unreached(op, id, u, errors.New("its answer is too long"))
	case resp.StatusCode == http.StatusOK:
		if err := json.Unmarshal(body, out); err != nil {
			return unreached(op, id, u, err)
		}
		return nil
	}
	r := &refusal{}
	if err := json.Unmarshal(body, &r.m); err != nil || r.m.Kind == "" {
		return unreached(op, id, u, fmt.Errorf("it answered with status %d, and is perhaps no front", resp.StatusCode))
	}
	return &carrel.Error{Op: op, Kind: carrel.Kind(r.m.Kind), ID: id, Field: r.m.Field, Err: r, Hint: r.m.Hint, Limit: r.m.Limit}
}

// join gets a first certificate for the join token. The front is trusted when it has proved the
// token, too.
func (c *caller) join(ctx context.Context, name, token string, key certificate.Key) (a fleet.JoinAnswer, err error) {
	const op = "join fleet"
	request, err := key.Request()
	if err != nil {
		return a, &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	err = c.each(func(u *url.URL) error {
		ctx, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		a, err = joinAt(ctx, op, u, fleet.JoinRequest{Name: name, Request: request}, token)
		return err
	})
	return a, err
}

func joinAt(ctx context.Context, op string, u *url.URL, m fleet.JoinRequest, token string) (a fleet.JoinAnswer, err error) {
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "443")
	}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTime}, Config: &tls.Config{MinVersion: tls.VersionTLS13,
		NextProtos: []string{"http/1.1"}, InsecureSkipVerify: true}} //nolint:gosec // the proof below binds the connection to the token
	conn, err := d.DialContext(ctx, "tcp", host)
	if err != nil {
		return a, unreached(op, "", u, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	state := conn.(*tls.Conn).ConnectionState()
	if m.Proof, err = certificate.Prove(token, certificate.NodeSide, state, []byte(m.Name), m.Request); err != nil {
		return a, unreached(op, "", u, err)
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return a, &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String()+fleet.PathJoin, bytes.NewReader(raw))
	if err != nil {
		return a, &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	r.Close = true
	if err := r.Write(conn); err != nil {
		return a, unreached(op, "", u, err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		return a, unreached(op, "", u, err)
	}
	defer resp.Body.Close()
	if err := readAnswer(op, "", u, resp, &a); err != nil {
		return a, err
	}
	if !certificate.Proves(a.Proof, token, certificate.FrontSide, state, a.Certificate, a.Authority) {
		return a, &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: "join",
			Err:  fmt.Errorf("%s did not prove that it has the join token", u.Host),
			Hint: "something stands between this machine and the front, or the front has another token"}
	}
	return a, nil
}
