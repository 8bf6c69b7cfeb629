//go:build !linux

package settings

// mostMemory returns 0: this system has no such limit.
func mostMemory() int { return 0 }
