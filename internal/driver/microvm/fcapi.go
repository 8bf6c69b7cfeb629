//go:build linux

package microvm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// This file speaks Firecracker's API: HTTP with JSON bodies, over a Unix socket. The VMM may be
// hostile. Its socket lies in a directory that it writes to, so nothing there is taken for what its
// name says. Its answers are bounded, and tell nothing but success or failure. The form:
// https://github.com/firecracker-microvm/firecracker/blob/main/docs/api_requests/

// Bounds of the API.
const apiHeader = 16 << 10 // bytes of an answer's head

// apiTime bounds the wait for an answer that needs no work. Tests make it shorter.
var apiTime = 10 * time.Second

// process is a VMM that was started, or found again.
type process struct {
	pid   int
	pidfd *os.File
}

// ended reports whether the process is gone.
func (p process) ended() bool {
	over := true
	if raw, err := p.pidfd.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { over = proc.Ended(int(fd), 0) })
	}
	return over
}

var errVMMEnded = errors.New("the VMM has ended")

// api is a connection to a VMM's API.
type api struct{ client http.Client }

// dialAPI prepares requests to a VMM, which may have just started. The first request waits for its
// socket. The caller calls close.
func dialAPI(p process) *api {
	a := &api{}
	a.client.Transport = &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return awaitSocket(ctx, p) },
		MaxResponseHeaderBytes: apiHeader,
		DisableCompression:     true,
		MaxConnsPerHost:        1,
	}
	a.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return a
}

// close ends the connection.
func (a *api) close() { a.client.CloseIdleConnections() }

// awaitSocket connects as soon as the VMM listens.
func awaitSocket(ctx context.Context, p process) (net.Conn, error) {
	for wait := firstLook; ; wait = min(2*wait, lastLook) {
		c, err := dialSocket(ctx, p)
		switch {
		case err == nil:
			return c, nil
		case p.ended():
			return nil, errVMMEnded
		case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED):
			return nil, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// dialSocket connects to the socket in the VMM's root. Whatever the VMM puts there, the connection
// leads to the VMM itself: no link is followed, and the kernel says which process listens.
func dialSocket(ctx context.Context, p process) (net.Conn, error) {
	root, err := unix.Open("/proc/"+strconv.Itoa(p.pid)+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "the VMM's root", Err: err}
	}
	defer unix.Close(root)
	if p.ended() { // then this could be another process's
		return nil, errVMMEnded
	}
	socket, err := unix.Openat2(root, apiSocket[1:], &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "the VMM's API socket", Err: err}
	}
	defer unix.Close(socket)
	var st unix.Stat_t
	if err := unix.Fstat(socket, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, errors.Join(errors.New("the VMM's API socket is none"), err)
	}
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", filepath.Join("/proc/self/fd", strconv.Itoa(socket)))
	if err != nil {
		return nil, err
	}
	if pid, err := peerOf(c.(*net.UnixConn)); err != nil || pid != p.pid {
		_ = c.Close()
		return nil, errors.Join(errors.New("another process listens on the VMM's API socket"), err)
	}
	return c, nil
}

// peerOf is the process that listens at the other end of a connection.
func peerOf(c *net.UnixConn) (pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid, errors.Join(cerr, err)
}

// apiRequest is one request.
type apiRequest struct {
	Method, Path string
	Body         any
}

// do sends a request, and waits at most limit for the answer.
func (a *api) do(ctx context.Context, limit time.Duration, r apiRequest) error {
	_, err := a.ask(ctx, limit, r)
	return err
}

// ask is do for a request whose answer has a body.
func (a *api) ask(ctx context.Context, limit time.Duration, r apiRequest) (body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var sent io.Reader
	if r.Body != nil {
		b, err := json.Marshal(r.Body)
		if err != nil {
			return nil, err
		}
		sent = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, "http://localhost"+r.Path, sent)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := a.client.Do(req)
	if err == nil {
		body, err = apiAnswer(resp)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.Method, r.Path, err)
	}
	return body, nil
}

// apiAnswer reads an answer. One that is too long ends the connection.
func apiAnswer(resp *http.Response) ([]byte, error) {
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxAnswer:
		return nil, errors.New("the VMM's answer is too long")
	case resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusOK:
		return b, nil
	}
	return nil, fmt.Errorf("the VMM refuses (status %d): %s", resp.StatusCode, faultIn(b))
}

// faultIn is the reason in an answer, for people.
func faultIn(b []byte) string {
	var fault struct {
		Message string `json:"fault_message"`
	}
	if json.Unmarshal(b, &fault) != nil {
		return "no reason given"
	}
	return words([]byte(fault.Message))
}

// all sends requests, one after the other.
func (a *api) all(ctx context.Context, requests []apiRequest) error {
	for _, r := range requests {
		if err := a.do(ctx, apiTime, r); err != nil {
			return err
		}
	}
	return nil
}
