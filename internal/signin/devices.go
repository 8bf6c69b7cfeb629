package signin

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// Device is a command line that waits for its person.
type Device struct {
	// Hash is that of the code which the command line has, and Code that of the one which its person
	// types. Who reads both can't log in with them.
	Hash, Code string
	Label      string        // what it says about itself
	From       string        // its network address
	Interval   time.Duration // the shortest pause between two of its questions
	Person     string        // who confirmed it; "" is nobody yet
	Denied     bool
	// Left is how long its codes are good, and Quiet how long ago it asked last; both are by the clock
	// of who keeps it.
	Left, Quiet time.Duration
	// Asked is set when it asks now.
	Asked bool
}

// Devices keep the command lines that wait. Doors that serve the same people share them. Error:
// Unavailable.
type Devices interface {
	// Add adds a command line. Errors: AlreadyExists when another one has the code, Exhausted when most
	// wait.
	Add(ctx context.Context, d Device, most int) error
	// Change calls fn with the command line that has a hash, or if that is "", a code, and keeps what fn
	// makes of it, or forgets it. Nobody else changes it meanwhile. fn may be called more than once.
	// Error: NotFound; expired ones may be found.
	Change(ctx context.Context, hash, code string, fn func(d *Device) (keep bool)) error
}

// memory keeps the command lines of one door.
type memory struct {
	mu  sync.Mutex
	all map[string]*kept // by Hash
}

// kept is a command line with the times that count for it.
type kept struct {
	Device
	until, asked time.Time
}

// Add implements Devices.
func (m *memory) Add(_ context.Context, d Device, most int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for hash, o := range m.all {
		switch {
		case time.Now().After(o.until):
			delete(m.all, hash)
		case o.Code == d.Code:
			return &carrel.Error{Op: "log in", Kind: carrel.AlreadyExists, Err: errors.New("the code is in use")}
		}
	}
	if len(m.all) >= most {
		return &carrel.Error{Op: "log in", Kind: carrel.Exhausted, Err: errors.New("too many command lines wait")}
	}
	m.all[d.Hash] = &kept{Device: d, until: time.Now().Add(d.Left)}
	return nil
}

// Change implements Devices.
func (m *memory) Change(_ context.Context, hash, code string, fn func(*Device) bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.all {
		if k.Hash != hash && (hash != "" || k.Code != code) {
			continue
		}
		now := time.Now()
		k.Left, k.Quiet, k.Asked = k.until.Sub(now), now.Sub(k.asked), false
		if !fn(&k.Device) {
			delete(m.all, k.Hash)
		}
		if k.Asked {
			k.asked = now
		}
		return nil
	}
	return &carrel.Error{Op: "log in", Kind: carrel.NotFound}
}
