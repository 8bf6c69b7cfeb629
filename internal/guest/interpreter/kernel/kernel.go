package kernel

import (
	"context"
	"errors"
)

// Cell is code to run.
type Cell struct {
	Code string
	// Base is the environment of the sandbox. A kernel takes it over when it differs from the Base
	// of the cell before.
	Base map[string]string
	// Env are more variables, for this cell only.
	Env map[string]string
}

// ErrDied means that the kernel ended while it ran a cell, or before.
var ErrDied = errors.New("the kernel ended")

// Kernel is a process that runs cells and keeps their state. The package's doc tells its life.
type Kernel interface {
	// Run runs one cell to its end. A failure of the code is an event, not an error. The error is
	// ErrDied, the context's or the sink's.
	Run(ctx context.Context, c Cell, out Sink) error
	// Interrupt makes the running cell fail, if the language can do that.
	Interrupt()
	// Settle waits until a cell whose Run was left is over.
	Settle(ctx context.Context) error
	// Done is closed when the process has ended.
	Done() <-chan struct{}
	// Reason says why the process ended. It is "" before.
	Reason() string
	// PID is the process's ID.
	PID() int
	// Close kills the process group and waits for the process.
	Close()
}

// Stretcher is an optional part of a Kernel.
type Stretcher interface {
	// Stretch does what a cell does, but leaves no trace in the kernel's state. The rules are those of
	// Run.
	Stretch(ctx context.Context) error
}
