package guest

import (
	"strings"
	"time"
)

// InitRequest is the body of POST /init: what makes a booted guest this sandbox
// and no other. It is sent after every start and every restore. The first six
// fields are envd's own.
type InitRequest struct {
	EnvVars        map[string]string `json:"envVars,omitempty"`
	AccessToken    string            `json:"accessToken,omitempty"` // "" opens the guest to all who reach it
	Timestamp      time.Time         `json:"timestamp,omitzero"`
	DefaultUser    string            `json:"defaultUser,omitempty"`
	DefaultWorkdir string            `json:"defaultWorkdir,omitempty"`
	SandboxID      string            `json:"sandboxID,omitempty"`
	Hostname       string            `json:"hostname,omitempty"`
	TemplateID     string            `json:"templateID,omitempty"`
}

// Tunnel is how the host reaches listeners on the sandbox's loopback: GET
// TunnelPath + port with "Upgrade: carrel-tunnel". The answer is 101 and then raw
// bytes both ways, or 502 when nothing listens.
const (
	TunnelPath     = "/carrel/tunnel/"
	TunnelProtocol = "carrel-tunnel"
)

// Internal reports whether a guest route is for the host alone. The gateway
// answers 404 for these, as E2B's does; the guest itself answers them only to
// trusted peers.
func Internal(path string) bool {
	switch path {
	case "/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade":
		return true
	}
	return strings.HasPrefix(path, "/carrel/")
}
