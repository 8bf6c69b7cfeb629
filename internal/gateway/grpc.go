package gateway

import (
	"crypto/tls"
	"net/http"
	"strings"
	"time"
)

// isGRPC reports whether a request is gRPC, whose trailers and streams in both
// directions only HTTP/2 carries. Browsers' own form of it (grpc-web) goes over
// HTTP/1. Other HTTP/2 requests do too: most servers in sandboxes speak nothing else,
// and "TE: trailers", which some browsers send with all requests, says nothing of them.
func isGRPC(r *http.Request) bool {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	return r.ProtoMajor == 2 && (kind == "application/grpc" || strings.HasPrefix(kind, "application/grpc+"))
}

// newGRPCTransport speaks HTTP/2 alone to ports: with prior knowledge in the clear,
// by ALPN in TLS.
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
