package seccomp

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	children["opens"] = func(args []string) {
		for _, name := range args {
			fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
			fmt.Println(name, fd >= 0, err)
		}
	}
	children["time"] = func(args []string) {
		n := atoi(args[0])
		rate := func(what string, f func()) {
			var rounds []time.Duration // the minimum counts, because the machine may be busy
			for range 20 {
				begin := time.Now()
				for range n / 20 {
					f()
				}
				rounds = append(rounds, time.Since(begin)/time.Duration(n/20))
			}
			slices.Sort(rounds)
			fmt.Printf("%s %v least, %v median\n", what, rounds[0], rounds[10])
		}
		rate("watched openat", func() { unix.Openat(unix.AT_FDCWD, "/nowhere", unix.O_WRONLY, 0) })
		rate("unwatched openat", func() { unix.Openat(unix.AT_FDCWD, "/nowhere", unix.O_RDONLY, 0) })
		rate("getppid", func() { unix.Getppid() })
	}
}

func TestListenerAnswers(t *testing.T) {
	f := Filter{WatchWrites: true}
	c := start(t, f, "opens", "/one", "two", "/three")
	paths := make(chan string, 10)
	c.serve(t, f, func(c Call) Answer {
		p, err := c.Path(0, 1)
		if err != nil {
			t.Error(err)
		}
		paths <- c.Name + " " + p
		if p == "/three" {
			return Answer{Value: 1}
		}
		return Answer{Errno: unix.EXDEV}
	})
	got := c.finish(t)
	if want := "/one false invalid cross-device link\ntwo false invalid cross-device link\n/three true <nil>\n"; got != want {
		t.Errorf("child saw %q", got)
	}
	dir, _ := os.Getwd()
	for _, want := range []string{"openat /one", "openat " + dir + "/two", "openat /three"} {
		if p := <-paths; p != want {
			t.Errorf("asked for %q, want %q", p, want)
		}
	}
}

func BenchmarkCalls(b *testing.B) {
	f := Filter{Deny: Dangerous(), Namespaces: true, UnixDatagram: true, Sockets: DefaultSockets(), TTY: true, Personality: true, WatchConnect: true, WatchBind: true, WatchWrites: true}
	for b.Loop() {
		c := start(b, f, "time", "20000")
		c.serve(b, f, func(c Call) Answer { return Answer{Errno: unix.EROFS} })
		b.Log(strings.ReplaceAll(c.finish(b), "\n", "; "))
	}
	bare := exec.Command("/proc/self/exe")
	bare.Args = []string{"carrel-played", "time", "", "20000"}
	out, err := bare.Output()
	b.Logf("without a filter: %s %v", strings.ReplaceAll(string(out), "\n", "; "), err)
	code, _ := compile(f)
	b.Logf("%d instructions", len(code))
}
