//go:build linux

package box

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestLastMessage checks that messages sent before a close are received, even if the closed end had
// unread messages. A stage closes like that when its command ends while a signal for the command is
// on its way.
func TestLastMessage(t *testing.T) {
	for _, unread := range []int{0, 1, 3} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		host, stage := &conn{fd: pair[0]}, &conn{fd: pair[1]}
		for range unread {
			if err := host.send(message{Word: kill, Signal: 15}); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range []message{{Word: stopped, Signal: 20}, {Word: exited, Signal: 15}} {
			if err := stage.send(m); err != nil {
				t.Fatal(err)
			}
		}
		stage.close()
		buf := make([]byte, maxMessage)
		for _, want := range []word{stopped, exited, ""} {
			if m, _, err := host.receive(buf); m.Word != want || err != nil {
				t.Errorf("%d unread: %q %v, want %q", unread, m.Word, err, want)
			}
		}
		host.close()
	}
}
