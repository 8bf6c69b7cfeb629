//go:build !unix

package settings

import "os"

// openNoWait opens a file for reading.
func openNoWait(name string) (*os.File, error) { return os.Open(name) }
