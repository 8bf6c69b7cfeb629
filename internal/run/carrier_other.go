//go:build !linux

package run

import "github.com/carrel-dev/carrel"

// carried reports false: there is no carrier on this system.
func carried(carrel.Policy) bool { return false }
