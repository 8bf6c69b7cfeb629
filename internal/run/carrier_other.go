//go:build !linux

package run

import "github.com/carrel-dev/carrel"

// carried reports whether another process could carry a box's network: not here.
func carried(carrel.Policy) bool { return false }
