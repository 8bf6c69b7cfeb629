package gateway

import (
	"crypto/tls"
	"net/http"
	"strings"
	"time"
)

// isGRPC reports whether a request is gRPC. Its trailers and streams in both directions need
// HTTP/2. The form for browsers (grpc-web) goes over HTTP/1. So do other HTTP/2 requests, because
// most servers in sandboxes speak nothing else. "TE: trailers" is no sign of gRPC: some browsers
// send it with all requests.
func isGRPC(r *http.Request) bool {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	return r.ProtoMajor == 2 && (kind == "application/grpc" || strings.HasPrefix(kind, "application/grpc+"))
}

// newGRPCTransport makes a transport that speaks only HTTP/2 to ports: with prior knowledge in the
// clear, by ALPN in TLS.
func (g *Gateway) newGRPCTransport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{
		DialContext:            g.dialPort,
		DisableCompression:     true,
		Protocols:              protocols,
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as for other ports
		MaxResponseHeaderBytes: 1 << 20,
		IdleConnTimeout:        time.Minute,
		TLSHandshakeTimeout:    10 * time.Second,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream:     1 << 20,
			MaxReceiveBufferPerConnection: 4 << 20,
			SendPingTimeout:               30 * time.Second,
			PingTimeout:                   15 * time.Second,
		},
	}
}
