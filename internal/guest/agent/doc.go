// Package agent is the guest's side of the link: it serves the envd protocol of E2B's SDKs over
// HTTP, for any [System].
//
// It serves the Connect services process.Process and filesystem.Filesystem, file contents under
// /files, and /health, /metrics, /envs, /init and the tunnel.
//
// # Threats
//
// The gateway and every process inside the sandbox can reach the agent. /init sets the access
// token. The agent answers /init and the tunnel only to peers that Config.Trusted accepts: the
// host's end of the wire, never a process inside. Every other route demands the access token if one
// is set. A request may name any path or user. That is no escape, because the caller owns the
// sandbox.
package agent
