//go:build !amd64

package gvisor

// keepCPUID has nothing to keep: only amd64 has the instruction.
func keepCPUID() error { return nil }
