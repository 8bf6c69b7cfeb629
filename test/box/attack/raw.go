package main

import (
	"syscall"
	"unsafe"
)

// cstring returns a NUL-terminated copy of s.
func cstring(s string) unsafe.Pointer {
	p, err := syscall.BytePtrFromString(s)
	if err != nil {
		panic(err)
	}
	return unsafe.Pointer(p)
}

// errno is e as an error.
func errno(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}
