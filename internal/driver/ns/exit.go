package ns

import (
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
)

// reason tells why the sandbox ended. It must run while the control group exists.
func (in *Instance) reason(killed bool, status string) driver.Exit {
	return hosted.Ending{
		Killed: killed, Status: status, First: "the sandbox's first process", Events: in.group.Events(),
		OverMemory: in.memory.Passed(), MemoryMB: in.rec.MemoryMB,
		PidsReached: "its processes had reached their limit", Words: func() string { return hosted.GuestWords(in.guestLog) },
	}.Exit()
}
