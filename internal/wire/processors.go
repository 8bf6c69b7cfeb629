package wire

import (
	"math/rand"
	"reflect"
	"runtime"
	"unsafe"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// maxProcessors bounds the goroutines that handle a link's TCP segments. gVisor starts one for each
// processor with every stack. With 2,000 links on 64 processors, that makes 128,000, and hardly any
// of them ever has work. A few are enough for one sandbox's link.
const maxProcessors = 4

// newTCP is tcp.NewProtocol with at most maxProcessors goroutines. gVisor has no option for that.
// TestProcessors fails when a new gVisor changes the field.
func newTCP(s *stack.Stack) stack.TransportProtocol {
	p := tcp.NewProtocol(s)
	if runtime.GOMAXPROCS(0) <= maxProcessors {
		return p
	}
	v := reflect.ValueOf(p)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return p
	}
	if d := v.Elem().FieldByName("dispatcher"); d.IsValid() && d.CanAddr() {
		initDispatcher(d.Addr().UnsafePointer(), s.InsecureRNG(), maxProcessors) // ends those that run
	}
	return p
}

//go:linkname initDispatcher gvisor.dev/gvisor/pkg/tcpip/transport/tcp.(*dispatcher).init
func initDispatcher(d unsafe.Pointer, rng *rand.Rand, processors int)
