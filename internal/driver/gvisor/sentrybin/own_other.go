//go:build !unix

package sentrybin

import (
	"errors"
	"os"
)

// openOwn always fails: on such systems no sandbox has a kernel of its own.
func openOwn(string) (*os.File, error) { return nil, errors.New("not on this system") }
