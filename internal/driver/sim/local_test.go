package sim_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/guest"
)

// TestLocal runs a command that a pattern matches. The sandbox must first ask the host, as itself.
func TestLocal(t *testing.T) {
	asked := make(chan string, 4)
	d := sim.New(sim.Options{Local: func(id carrel.ID, c net.Conn) {
		b := make([]byte, 4<<10)
		n, _ := c.Read(b)
		if !strings.Contains(string(b[:n]), "}") {
			m, _ := c.Read(b[n:])
			n += m
		}
		asked <- string(id) + " " + string(b[:n])
		_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n{\"snapshotID\":\"s1\"}"))
	}})
	spec := driver.Spec{ID: carrel.NewID(), Dir: t.TempDir(), Limits: carrel.Limits{CPUs: 1, MemoryMB: 64, DiskMB: 64, Pids: 32}}
	i, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = i.Destroy(context.Background()) }()
	c := guest.NewConn(i.Dial, guest.ConnOptions{ID: spec.ID})
	defer c.Close()
	if err := c.Init(t.Context(), guest.InitRequest{CheckpointBefore: []string{"^rm "}, Timestamp: time.Now()}); err != nil {
		t.Fatal(err)
	}
	res, err := c.Run(t.Context(), carrel.Command{Shell: "rm -f nothing; echo done"})
	if err != nil || string(res.Stdout) != "done\n" {
		t.Fatal(res, err)
	}
	if got := <-asked; !strings.HasPrefix(got, string(spec.ID)+" POST /checkpoint ") || !strings.Contains(got, `"command":"rm -f nothing; echo done"`) {
		t.Errorf("asked %q", got)
	}
	if a, err := c.Activity(t.Context()); err != nil || a != (guest.Activity{}) {
		t.Errorf("activity %+v, %v", a, err)
	}
	if err := c.Leave(t.Context(), "the sandbox was paused"); err != nil {
		t.Error(err)
	}
}

// TestLocalEnds destroys a sandbox while its host is being asked. The sandbox must end.
func TestLocalEnds(t *testing.T) {
	entered := make(chan struct{})
	d := sim.New(sim.Options{Local: func(_ carrel.ID, c net.Conn) {
		close(entered)
		b := make([]byte, 4<<10)
		for {
			if _, err := c.Read(b); err != nil {
				return
			}
		}
	}})
	spec := driver.Spec{ID: carrel.NewID(), Dir: t.TempDir(), Limits: carrel.Limits{CPUs: 1, MemoryMB: 64, DiskMB: 64, Pids: 32}}
	i, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	c := guest.NewConn(i.Dial, guest.ConnOptions{ID: spec.ID})
	defer c.Close()
	if err := c.Init(t.Context(), guest.InitRequest{CheckpointBefore: []string{"."}}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := c.Run(context.Background(), carrel.Command{Shell: "true"})
		ended <- err
	}()
	<-entered
	if err := i.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the command ran")
	}
}
