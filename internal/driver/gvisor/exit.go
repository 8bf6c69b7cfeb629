package gvisor

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// maxWords bounds how much of the logs goes into a message, in bytes.
const maxWords = 1 << 10

// reason says why the sentry ended. It must run while the control group exists.
func (in *Instance) reason(killed bool, status string) driver.Exit {
	e := driver.Exit{Time: now()}
	if killed {
		e.Reason, e.Message = carrel.EndKilled, "destroyed"
		return e
	}
	if in.outOfMemory() {
		e.Reason, e.Message = carrel.EndOutOfMemory, in.memoryLimit()+": give the sandbox more memory"
		return e
	}
	parts := []string{"the sandbox's kernel ended"}
	if status != "" {
		parts[0] += " (" + status + ")"
	}
	if in.group.Events().PidsMax > 0 {
		parts = append(parts, "its host tasks had reached their limit")
	}
	if text := in.lastWords(); text != "" {
		parts = append(parts, text)
	}
	e.Reason, e.Message = carrel.EndCrashed, strings.Join(parts, ": ")
	return e
}

// memoryLimit says which limit was hit.
func (in *Instance) memoryLimit() string {
	return fmt.Sprintf("the memory limit of %d MiB was reached", in.rec.MemoryMB)
}

// lastWords is what the guest and then the sentry said at the end.
func (in *Instance) lastWords() string {
	var words []string
	if in.guestLog != nil {
		// The sealed memory has its full size from the start, zeros after the text.
		b := make([]byte, maxGuestLog)
		n, _ := in.guestLog.ReadAt(b, 0)
		if i := bytes.IndexByte(b[:n], 0); i >= 0 {
			n = i
		}
		words = append(words, lastLines(b[:n]))
	}
	if f, err := os.Open(filepath.Join(in.rec.Dir, logFile)); err == nil {
		defer f.Close()
		// The cause stands at the head of a panic; what follows are its stacks.
		b, _ := io.ReadAll(io.LimitReader(f, maxWords))
		words = append(words, strings.TrimSpace(string(b)))
	}
	return strings.Trim(strings.Join(words, "\n"), "\n ")
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
