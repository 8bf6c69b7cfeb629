package lan

import (
	"math/rand/v2"
	"os"
	"sync"
)

// Switch forwards frames between the hosts, as long as it is told nothing else.
type Switch struct {
	mu    sync.Mutex
	ports []*os.File
	cuts  map[[2]int]bool
	loss  float64
	lost  int

	wg sync.WaitGroup
}

func newSwitch() *Switch { return &Switch{cuts: map[[2]int]bool{}} }

// Lose has this part of all frames lost.
func (s *Switch) Lose(part float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loss = part
}

// Lost is how many frames were lost by chance.
func (s *Switch) Lost() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// Cut has two hosts hear nothing of each other.
func (s *Switch) Cut(a, b *Host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts[[2]int{a.port, b.port}], s.cuts[[2]int{b.port, a.port}] = true, true
}

// Heal ends all cuts and the loss.
func (s *Switch) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.cuts)
	s.loss = 0
}

// plug adds a port.
func (s *Switch) plug(file *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := len(s.ports)
	s.ports = append(s.ports, file)
	s.wg.Go(func() { s.read(from, file) })
}

// close pulls all cables.
func (s *Switch) close() {
	s.mu.Lock()
	for _, file := range s.ports {
		_ = file.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// lastByte is where a frame has the last byte of its destination, and group the bit of the first byte that says
// that it is for several hosts.
const (
	lastByte = 5
	group    = 1
	header   = 14
)

// read forwards what a host sends, until its port is closed.
func (s *Switch) read(from int, file *os.File) {
	buf := make([]byte, mtu+header)
	for {
		n, err := file.Read(buf)
		if err != nil {
			return
		}
		if n < header {
			continue
		}
		for _, to := range s.route(from, buf[0]&group != 0, int(buf[lastByte])-1) {
			_, _ = to.Write(buf[:n]) // a host that is gone or has a full queue does not get it, as on any network
		}
	}
}

// route says which ports get a frame.
func (s *Switch) route(from int, all bool, to int) (out []*os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loss > 0 && rand.Float64() < s.loss {
		s.lost++
		return nil
	}
	for i, file := range s.ports {
		if i != from && (all || i == to) && !s.cuts[[2]int{from, i}] {
			out = append(out, file)
		}
	}
	return out
}
