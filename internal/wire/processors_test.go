package wire

import (
	"reflect"
	"runtime"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// On a machine with many processors a link has as many goroutines as on a small one.
func TestProcessors(t *testing.T) {
	for _, processors := range []int{1, maxProcessors, 64} {
		func() {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			s, err := newStack(maxWindow)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Destroy()
			// How many there are only gVisor's own field says: others of the test's process come and go.
			of := reflect.ValueOf(s.TransportProtocolInstance(tcp.ProtocolNumber)).Elem().FieldByName("dispatcher").FieldByName("processors")
			if got, want := of.Len(), min(processors, maxProcessors); got != want {
				t.Errorf("with %d processors a stack has %d goroutines for TCP, want %d", processors, got, want)
			}
		}()
	}
}
