package carrel

import "time"

// Load is how busy a machine is that holds sandboxes, and what is free on it. Who places sandboxes
// on several machines decides by it. A total of 0 means that the value is not known.
type Load struct {
	Memory, MemoryTotal int64 // bytes, free and in all
	Disk, DiskTotal     int64 // bytes, free and in all
	// Starting is how many sandboxes start, Limit how many may at once, and Waiting how many wait
	// for their turn. Wait is how long a new request would wait.
	Starting, Limit, Waiting int
	Wait                     time.Duration
	// Event is the number of the machine's newest event.
	Event int64
}
