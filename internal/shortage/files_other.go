//go:build !linux

package shortage

// fewFiles is not known on other systems.
func fewFiles() bool { return false }
