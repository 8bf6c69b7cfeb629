//go:build linux

package microvm

import "time"

// WithKVM has a driver take another file for KVM's device.
func (o Options) WithKVM(file string) Options {
	o.kvm = file
	return o
}

// SetAPITime bounds the wait for an answer of a VMM until the caller calls undo.
func SetAPITime(limit time.Duration) (undo func()) {
	before := apiTime
	apiTime = limit
	return func() { apiTime = before }
}
