package carrel

import (
	"context"
	"time"
)

// KeptOutput is what a sandbox keeps of what its processes wrote. It is kept inside the sandbox, in
// the guest's memory: it is paused, forked and rolled back with the processes, and costs the
// sandbox's own memory. The last bytes of each process are kept and, for a while, those of ended
// processes that were started with [Command].Keep or that a client left before their end.
type KeptOutput interface {
	// Records lists processes that were started through the guest, also those ended ones that are
	// remembered, the oldest first.
	Records(ctx context.Context) ([]ProcessRecord, error)
	// Output returns a piece of what a process wrote. The next piece begins at Next. Errors:
	// NotFound when nothing is known of such a process.
	Output(ctx context.Context, q OutputQuery) (ProcessOutput, error)
}

// ProcessRecord is what is known of a process that runs or has run.
type ProcessRecord struct {
	// Serial counts the processes of a sandbox. A PID is given again, a serial number is not.
	Serial  int64     `json:"serial"`
	PID     int       `json:"pid"`
	Tag     string    `json:"tag,omitempty"`
	Args    []string  `json:"args"` // cut off where they are long
	Dir     string    `json:"dir,omitempty"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"` // zero while it runs
	// ExitCode and Status are those of a [Result], of an ended process.
	ExitCode int    `json:"exitCode"`
	Status   string `json:"status,omitempty"`
	Written  int64  `json:"written"` // bytes since its start
	Kept     int64  `json:"kept"`    // the last bytes of these, which can be read
}

// OutputQuery asks for a piece of a process's output.
type OutputQuery struct {
	// Process is a PID, or else a tag. Of several it is the youngest that runs, or else the
	// youngest.
	Process string
	// Serial, unless 0, is the process's serial number, and Process does not count.
	Serial int64
	// From is where to begin: so many bytes after the beginning of all output. If they are not kept
	// any more, the piece begins with the oldest that are.
	From int64
	// Most bounds the piece, in bytes. 0, and what is too much, is what the guest allows.
	Most int
	// Wait is how long to wait for output if there is none yet; the guest may wait less.
	Wait time.Duration
}

// ProcessOutput is a piece of a process's output, with what was known of the process then.
type ProcessOutput struct {
	ProcessRecord
	From   int64         `json:"from"` // where it begins
	Next   int64         `json:"next"` // where the next piece begins
	Pieces []OutputPiece `json:"pieces"`
}

// OutputPiece is what was written to one stream.
type OutputPiece struct {
	Stream string `json:"stream"` // stdout, stderr or terminal
	Data   []byte `json:"data"`
}

// Over reports whether the process has ended and this piece is the last.
func (o ProcessOutput) Over() bool { return !o.Ended.IsZero() && o.Next >= o.Written }
