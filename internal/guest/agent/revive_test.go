package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/internal/guest/process"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// newReviving starts an agent that starts every process with a tag again.
func newReviving(t *testing.T) *guestUnderTest {
	return newGuest(t, func(c *agent.Config) {
		c.Revive = func(tag, _ string, _ []string) bool { return tag != "" }
	})
}

// lives returns the process IDs that a script's runs wrote to a file.
func lives(t *testing.T, file string) []int {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil // none has come so far
	}
	var out []int
	for _, word := range strings.Fields(string(raw)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, pid)
	}
	return out
}

// TestRevive kills a process by each signal that a program inside can send, and stops it as a
// client. Each time there is another one.
func TestRevive(t *testing.T) {
	g := newReviving(t)
	file := filepath.Join(t.TempDir(), "pids")
	tag := "own"
	req := &process.StartRequest{Tag: &tag, Process: &process.ProcessConfig{Cmd: "/bin/sh",
		Args: []string{"-c", fmt.Sprintf("echo $$ >>%s; exec sleep 1000000", file)}}}
	s := g.start(t, req)
	for i, end := range []func(pid int){
		func(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) },
		func(pid int) { _ = syscall.Kill(pid, syscall.SIGTERM) },
		func(pid int) { g.kill(t, uint32(pid)) },
	} {
		testenv.Eventually(t, "it runs", func() bool { return len(lives(t, file)) == i+1 })
		end(lives(t, file)[i])
	}
	testenv.Eventually(t, "it runs again", func() bool { return len(lives(t, file)) == 4 })
	if e := s.finish(t); e.end.GetExited() {
		t.Errorf("the client of the first one heard of %v", e.end)
	}
	resp, err := g.client.List(t.Context(), connect.NewRequest(&process.ListRequest{}))
	if err != nil || len(resp.Msg.GetProcesses()) != 1 ||
		int(resp.Msg.GetProcesses()[0].GetPid()) != lives(t, file)[3] {
		t.Errorf("the list of processes: %v, %v", resp, err)
	}
}

// TestReviveRefused has processes end by themselves. Only a status above 1 asks for another start,
// and those that follow come more and more slowly.
func TestReviveRefused(t *testing.T) {
	g := newReviving(t)
	tag := "own"
	for status, again := range []bool{false, false, true} {
		file := filepath.Join(t.TempDir(), "pids")
		g.mustRun(t, &process.StartRequest{Tag: &tag, Process: &process.ProcessConfig{Cmd: "/bin/sh",
			Args: []string{"-c", fmt.Sprintf("echo $$ >>%s; exit %d", file, status)}}})
		if !again {
			// The next one's pauses give a second start of this one its time.
			defer func() {
				if n := len(lives(t, file)); n != 1 {
					t.Errorf("status %d: %d starts", status, n)
				}
			}()
			continue
		}
		began := time.Now()
		testenv.Eventually(t, "four starts", func() bool { return len(lives(t, file)) >= 4 })
		if took := time.Since(began); took < 500*time.Millisecond {
			t.Errorf("four starts took %v", took)
		}
	}
}
