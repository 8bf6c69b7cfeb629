package wire

import (
	"reflect"
	"runtime"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// TestProcessors shows that a link has as many goroutines on a machine with many processors as on a
// small one.
func TestProcessors(t *testing.T) {
	for _, processors := range []int{1, maxProcessors, 64} {
		func() {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			s, err := newStack(maxWindow)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Destroy()
			// Only gVisor's own field gives the number, because other goroutines of the test
			// process come and go.
			of := reflect.ValueOf(s.TransportProtocolInstance(tcp.ProtocolNumber)).Elem().FieldByName("dispatcher").FieldByName("processors")
			if got, want := of.Len(), min(processors, maxProcessors); got != want {
				t.Errorf("with %d processors a stack has %d goroutines for TCP, want %d", processors, got, want)
			}
		}()
	}
}
