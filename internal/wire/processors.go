package wire

import (
	"math/rand"
	"reflect"
	"runtime"
	"unsafe"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// maxProcessors bounds the goroutines that handle a link's TCP segments. gVisor starts one for each processor, with every stack: with 2,000
// links on 64 processors 128,000, of which hardly any ever had anything to do. One sandbox's link is no faster with more than a few.
const maxProcessors = 4

// newTCP is tcp.NewProtocol with so many goroutines at most. gVisor has no option for that; TestProcessors fails when
// a new version of it is made differently.
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
