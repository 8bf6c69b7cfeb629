package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/internal/guest"
)

// tunnelDialTimeout bounds the dial; loopback answers at once or never.
const tunnelDialTimeout = 10 * time.Second

// serveTunnel connects the host with a listener on the sandbox's loopback and copies bytes both
// ways. If one side ends its direction, the other side is told and may still send.
func (a *Agent) serveTunnel(w http.ResponseWriter, r *http.Request) {
	if !a.trusted(r) {
		writeError(w, http.StatusForbidden, "the tunnel is for the host alone")
		return
	}
	port, err := strconv.ParseUint(r.PathValue("port"), 10, 16)
	if err != nil || port == 0 {
		writeError(w, http.StatusBadRequest, fmt.Sprintf("port: %q is not a port", r.PathValue("port")))
		return
	}
	hijacker, ok := w.(http.Hijacker)
	if !ok || !strings.EqualFold(r.Header.Get("Upgrade"), guest.TunnelProtocol) {
		w.Header().Set("Upgrade", guest.TunnelProtocol)
		writeError(w, http.StatusUpgradeRequired, "Upgrade: want "+guest.TunnelProtocol+" over HTTP/1.1")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), tunnelDialTimeout)
	defer cancel()
	inner, err := a.sys.DialLoopback(ctx, uint16(port))
	if err != nil {
		writeError(w, http.StatusBadGateway, err.Error())
		return
	}
	defer func() { _ = inner.Close() }()
	outer, buf, err := hijacker.Hijack()
	if err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	defer func() { _ = outer.Close() }()
	if _, err := fmt.Fprintf(outer, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", guest.TunnelProtocol); err != nil {
		return
	}
	// When the agent closes, break both connections, so that the copies end.
	defer context.AfterFunc(a.ctx, func() { _, _ = inner.Close(), outer.Close() })()
	// Do the same for an interruption. Neither side may take that for an orderly end.
	defer context.AfterFunc(r.Context(), func() { reset(inner, outer) })()
	splice(inner, outer, buf.Reader)
}

// splice copies between two connections until both directions have ended. early holds the bytes
// that were already read from outer.
func splice(inner, outer net.Conn, early *bufio.Reader) {
	var wg sync.WaitGroup
	wg.Go(func() {
		if n := early.Buffered(); n > 0 {
			if _, err := io.CopyN(inner, early, int64(n)); err != nil {
				_ = outer.Close()
				return
			}
		}
		copyHalf(inner, outer)
	})
	wg.Go(func() { copyHalf(outer, inner) })
	wg.Wait()
}

// copyHalf copies one direction. It passes an orderly end on. After any other end it breaks both
// connections, because the other side must not take incomplete data for complete.
func copyHalf(dst, src net.Conn) {
	_, err := io.Copy(dst, src)
	half, ok := dst.(interface{ CloseWrite() error })
	if err == nil && ok && half.CloseWrite() == nil {
		return
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		_ = src.Close()
	}
	_ = dst.Close()
}
