// Package version holds the version stamped into the binaries at build time.
package version

// Version is set by the linker: -X github.com/carrel-dev/carrel/internal/version.Version=v1.2.3.
// Without that it is "devel".
var Version = "devel"
