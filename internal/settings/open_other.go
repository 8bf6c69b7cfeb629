//go:build !unix

package settings

import "os"

// openNoWait opens a file to read.
func openNoWait(name string) (*os.File, error) { return os.Open(name) }
