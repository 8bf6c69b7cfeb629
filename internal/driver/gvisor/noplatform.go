package gvisor

import (
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// noPlatform is a platform for a state that is loaded only to be read. Tasks and address spaces ask
// for its features, and nothing ever runs on it. A call of any other method panics, which ends the
// confined process.
type noPlatform struct{ platform.Platform }

// SupportsAddressSpaceIO implements platform.Platform.
func (noPlatform) SupportsAddressSpaceIO() bool { return false }

// DetectsCPUPreemption implements platform.Platform.
func (noPlatform) DetectsCPUPreemption() bool { return false }

// HaveGlobalMemoryBarrier implements platform.Platform.
func (noPlatform) HaveGlobalMemoryBarrier() bool { return false }

// HasCPUNumbers implements platform.Platform.
func (noPlatform) HasCPUNumbers() bool { return false }

// NumCPUs implements platform.Platform.
func (noPlatform) NumCPUs() int { return 1 }

// ConcurrencyCount implements platform.Platform.
func (noPlatform) ConcurrencyCount() int { return 1 }

// NewContext implements platform.Platform.
func (noPlatform) NewContext(context.Context) platform.Context { return nil }

// NewAddressSpace implements platform.Platform.
func (noPlatform) NewAddressSpace() (platform.AddressSpace, error) { return noAddressSpace{}, nil }

// noAddressSpace is never mapped.
type noAddressSpace struct{ platform.AddressSpace }

// PreFork implements platform.AddressSpace.
func (noAddressSpace) PreFork() {}

// PostFork implements platform.AddressSpace.
func (noAddressSpace) PostFork() {}

// Release implements platform.AddressSpace.
func (noAddressSpace) Release() {}
