package gvisor

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
)

// reason tells why the sentry ended. It must run while the control group exists.
func (in *Instance) reason(killed bool, status string) driver.Exit {
	return hosted.Ending{
		Killed: killed, Status: status, First: "the sandbox's kernel", Events: in.group.Events(),
		OverMemory: in.memory.Passed(), MemoryMB: in.rec.MemoryMB,
		PidsReached: "its host tasks had reached their limit", Words: in.lastWords,
	}.Exit()
}

// lastWords returns the last output of the guest, then that of the sentry.
func (in *Instance) lastWords() string {
	words := []string{hosted.GuestWords(in.guestLog)}
	if f, err := os.Open(filepath.Join(in.rec.Dir, logFile)); err == nil {
		defer f.Close()
		// A panic's first line is its cause; its stacks follow.
		b, _ := io.ReadAll(io.LimitReader(f, hosted.MaxWords))
		words = append(words, strings.TrimSpace(string(b)))
	}
	return strings.Trim(strings.Join(words, "\n"), "\n ")
}
