package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel/internal/admission"
)

// What a request may say of itself.
const (
	// tenantHeader names for whom a holder of the key asks: starts are shared out
	// fairly among them. Without it the key is one tenant.
	tenantHeader = "Carrel-Tenant"
	// deadlineHeader is how long the caller will wait for the answer, in milliseconds:
	// one that can't be served by then is refused at once. E2B's SDKs and Connect's
	// clients have it from the guest's protocol.
	deadlineHeader = "Connect-Timeout-Ms"
)

// asCaller returns the request with what its headers say in its context.
func asCaller(r *http.Request) (_ *http.Request, done func(), err error) {
	ctx, done := r.Context(), context.CancelFunc(func() {})
	if name := r.Header.Get(tenantHeader); name != "" {
		if !admission.ValidTenant(name) {
			return r, nil, invalid(tenantHeader, "%q is not 1 to 64 letters, digits and . _ - @", clip(name))
		}
		ctx = admission.WithTenant(ctx, name)
	}
	if text := r.Header.Get(deadlineHeader); text != "" && r.Method == http.MethodPost {
		ms, err := strconv.ParseUint(text, 10, 40)
		if err != nil {
			return r, nil, invalid(deadlineHeader, "%q is not a number of milliseconds", clip(text))
		}
		if ms > 0 {
			ctx, done = context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
		}
	}
	if ctx == r.Context() {
		return r, done, nil
	}
	return r.WithContext(ctx), done, nil
}

// admission is GET /carrel/v1/admission.
func (s *Server) admission(w http.ResponseWriter, _ *http.Request) error {
	if s.opts.Admission == nil {
		return later("", "admission")
	}
	writeJSON(w, http.StatusOK, s.opts.Admission())
	return nil
}
