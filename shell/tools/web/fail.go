package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel/shell/tool"
)

// Exit statuses of curl.
const (
	errProtocol  = 1
	errUsage     = 2
	errURL       = 3
	errMissing   = 4
	errResolve   = 6
	errConnect   = 7
	errPartial   = 18
	errReturned  = 22
	errWrite     = 23
	errRead      = 26
	errTimeout   = 28
	errRange     = 33
	errFile      = 37
	errRedirects = 47
	errEmpty     = 52
	errRecv      = 56
	errCert      = 60
	errEncoding  = 61
	errFileSize  = 63
	errTLS       = 35
)

// failure is an error with curl's number.
type failure struct {
	code int
	text string
}

// Error implements error.
func (f *failure) Error() string { return f.text }

func fail(code int, format string, args ...any) *failure {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// noWay is the error message on a machine without a network.
const noWay = "this machine has no way out: the sandbox has no network"

// reason returns the failure for an error of a request.
func reason(err error, host, port string) *failure {
	var f *failure
	var denied *tool.Denied
	var timeout interface{ Timeout() bool }
	text := err.Error()
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &denied):
		return fail(errConnect, "Failed to connect to %s port %s: denied by the sandbox's policy: %s", host, port, denied.Reason)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fail(errTimeout, "Connection timed out")
	case strings.Contains(text, "no such host"), strings.Contains(text, "lookup "):
		return fail(errResolve, "Could not resolve host: %s", host)
	case errors.Is(err, syscall.ECONNREFUSED), strings.Contains(text, "connection refused"):
		return fail(errConnect, "Failed to connect to %s port %s: Connection refused", host, port)
	case strings.Contains(text, "x509"), strings.Contains(text, "certificate"):
		return fail(errCert, "SSL certificate problem: %s", text)
	case strings.Contains(text, "tls:"):
		return fail(errTLS, "TLS connect error: %s", text)
	case errors.Is(err, io.EOF), strings.HasSuffix(text, "EOF"):
		return fail(errEmpty, "Empty reply from server")
	}
	return fail(errRecv, "Recv failure: %s", text)
}
