//go:build !amd64

package main

import "os"

// unlink and rmdir have no calls of their own here.
func unlink(name string) error { return os.Remove(name) }

func rmdir(name string) error { return os.Remove(name) }
