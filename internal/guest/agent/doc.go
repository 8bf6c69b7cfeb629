// Package agent is the guest's side of the door: the envd protocol of E2B's SDKs
// over HTTP, for whatever [System] it is given.
//
// It serves the Connect services process.Process and filesystem.Filesystem, file
// contents under /files, and /health, /metrics, /envs, /init and the tunnel.
//
// # Threats
//
// The agent is reached by the gateway and by every process inside the sandbox.
// /init, which sets the access token, and the tunnel are answered only to peers
// that Config.Trusted accepts: the host's end of the wire, never a process
// inside. Every other route demands the access token when one is set. A request
// may name any path or user: that is no escape, for the caller owns the sandbox.
package agent
