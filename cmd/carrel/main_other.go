//go:build !linux

package main

import "github.com/carrel-dev/carrel/internal/reexec"

// parts is empty: only on Linux, walls are made of this binary's own processes.
func parts() []reexec.Parts { return nil }
