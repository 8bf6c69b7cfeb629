//go:build !linux

// Package tier runs one command for "carrel run" in a sandbox of another tier than ns. It is Linux's alone.
package tier
