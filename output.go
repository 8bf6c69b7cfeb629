package carrel

import (
	"context"
	"time"
)

// KeptOutput is the last output of a sandbox's processes. The guest keeps it in its own memory. So
// it is paused, forked and rolled back with the processes, and it costs the sandbox's own memory.
// It covers the last bytes of each process. For a while it also covers ended processes, if they
// were started with [Command].Keep or if a client left before their end.
type KeptOutput interface {
	// Records lists processes that were started through the guest, including remembered ended ones,
	// the oldest first.
	Records(ctx context.Context) ([]ProcessRecord, error)
	// Output returns a piece of a process's output. The next piece begins at Next. Error: NotFound
	// for an unknown process.
	Output(ctx context.Context, q OutputQuery) (ProcessOutput, error)
}

// ProcessRecord describes a process that runs or has run.
type ProcessRecord struct {
	// Serial numbers the processes of a sandbox. A PID is reused, a serial number is not.
	Serial  int64     `json:"serial"`
	PID     int       `json:"pid"`
	Tag     string    `json:"tag,omitempty"`
	Args    []string  `json:"args"` // cut off where they are long
	Dir     string    `json:"dir,omitempty"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"` // zero while it runs
	// ExitCode and Status are set after the process's end. They mean the same as in a [Result].
	ExitCode int    `json:"exitCode"`
	Status   string `json:"status,omitempty"`
	Written  int64  `json:"written"` // bytes since its start
	Kept     int64  `json:"kept"`    // how many of the last bytes can be read
}

// OutputQuery asks for a piece of a process's output.
type OutputQuery struct {
	// Process is a PID, or else a tag. Of several processes, the youngest running one is meant, or
	// else the youngest.
	Process string
	// Serial, unless 0, is the process's serial number. Process is then ignored.
	Serial int64
	// From is the position of the first wanted byte, counted from the beginning of all output. If
	// that byte is not kept any more, the piece begins with the oldest kept one.
	From int64
	// Most bounds the piece, in bytes. 0 means the guest's own bound, which also holds for larger
	// values.
	Most int
	// Wait is how long to wait for output if there is none yet; the guest may wait less.
	Wait time.Duration
}

// ProcessOutput is a piece of a process's output, with the record of the process at that time.
type ProcessOutput struct {
	ProcessRecord
	From   int64         `json:"from"` // where it begins
	Next   int64         `json:"next"` // where the next piece begins
	Pieces []OutputPiece `json:"pieces"`
}

// OutputPiece is a part of the output that went to one stream.
type OutputPiece struct {
	Stream string `json:"stream"` // stdout, stderr or terminal
	Data   []byte `json:"data"`
}

// Over reports whether the process has ended and this piece is the last.
func (o ProcessOutput) Over() bool { return !o.Ended.IsZero() && o.Next >= o.Written }
