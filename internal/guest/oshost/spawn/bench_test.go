package spawn_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel/internal/guest/oshost/spawn"
)

// BenchmarkStart starts a program and waits for its end, in our way and in that of package syscall.
func BenchmarkStart(b *testing.B) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	fd := null.Fd()
	was := spawn.Refused.Load()
	defer spawn.Refused.Store(was)
	for name, refused := range map[string]bool{"spawn": false, "syscall": true} {
		b.Run(name, func(b *testing.B) {
			spawn.Refused.Store(refused)
			for b.Loop() {
				pid, err := spawn.Start("/bin/true", []string{"true"}, &spawn.Attr{Files: [3]uintptr{fd, fd, fd}})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
					b.Fatal(err)
				}
			}
			if spawn.Refused.Load() != refused {
				b.Fatal("this kernel has no clone3, or one that can't clear handlers")
			}
		})
	}
}
