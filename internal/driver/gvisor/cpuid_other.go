//go:build !amd64

package gvisor

// keepCPUID does nothing: only amd64 has the instruction.
func keepCPUID() error { return nil }
