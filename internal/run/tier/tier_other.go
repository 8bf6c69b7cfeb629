//go:build !linux

// Package tier runs one command for "carrel run" in a sandbox of another tier than ns. It works
// only on Linux.
package tier
