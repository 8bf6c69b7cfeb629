//go:build !unix

package sentrybin

import (
	"errors"
	"os"
)

// openOwn never finds one: such systems have no sandboxes with a kernel of their own.
func openOwn(string) (*os.File, error) { return nil, errors.New("not on this system") }
