package script

import (
	"errors"
)

// grant reads the rules of --tools.
func (n *node) grant(string) error { return errors.New("not yet") }

// installTools gives the script the object tools.
func (n *node) installTools() error { return nil }
