package ns

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// maxWords bounds how much of the logs goes into a message, in bytes.
const maxWords = 1 << 10

// reason says why the sandbox ended. It must run while the control group exists.
func (in *Instance) reason(killed bool, status string) driver.Exit {
	e := driver.Exit{Time: now()}
	if killed {
		e.Reason, e.Message = carrel.EndKilled, "destroyed"
		return e
	}
	events := in.group.Events()
	if in.overMemory.Load() || events.OOMKills > 0 {
		e.Reason = carrel.EndOutOfMemory
		e.Message = fmt.Sprintf("the memory limit of %d MiB was reached: give the sandbox more memory", in.rec.MemoryMB)
		return e
	}
	parts := []string{"the sandbox's first process ended"}
	if status != "" {
		parts[0] += " (" + status + ")"
	}
	if events.PidsMax > 0 {
		parts = append(parts, "its processes had reached their limit")
	}
	if text := in.lastWords(); text != "" {
		parts = append(parts, text)
	}
	e.Reason, e.Message = carrel.EndCrashed, strings.Join(parts, ": ")
	return e
}

// lastWords is what the guest said at the end.
func (in *Instance) lastWords() string {
	if in.guestLog == nil {
		return ""
	}
	return logText(in.guestLog)
}

// logText is the end of what a log in sealed memory holds: it has its full size from the start, zeros after the text.
func logText(f *os.File) string {
	b := make([]byte, maxGuestLog)
	n, _ := f.ReadAt(b, 0)
	if i := bytes.IndexByte(b[:n], 0); i >= 0 {
		n = i
	}
	return lastLines(b[:n])
}

// lastLines is the end of b, cut at a line.
func lastLines(b []byte) string {
	b = bytes.TrimSpace(b)
	if len(b) > maxWords {
		b = b[len(b)-maxWords:]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			b = b[i+1:]
		}
	}
	return string(b)
}
