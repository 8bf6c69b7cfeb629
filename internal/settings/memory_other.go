//go:build !linux

package settings

// mostMemory is 0: there is no such limit here.
func mostMemory() int { return 0 }
