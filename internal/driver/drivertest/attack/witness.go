package main

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// witness holds one object of every kind that a snapshot with memory has to keep. On request it
// reports whether it still has them. The suite reads its answers as JSON.
type witness struct {
	token string // random; hashed with a few MiB of its memory
	heap  []byte
	file  *os.File // open, without a name
	want  string   // its content

	mu     sync.Mutex // guards the two below; one request to the pipe at a time
	pipe   *bufio.ReadWriter
	loop   *bufio.ReadWriter
	held   []*heldConn
	ticks  atomic.Int64
	maxGap atomic.Int64 // between two ticks, in nanoseconds of the wall clock
}

// heldConn is a connection from outside, and the way it ended.
type heldConn struct{ state atomic.Value }

// answer is the witness's answer.
type answer struct {
	PID      int
	Token    string
	Heap     string
	Ticks    int64
	MaxGap   time.Duration
	File     string
	Pipe     string
	Loop     string
	Held     []string
	Unix     int64
	Random   string
	Hostname string
}

// witnessed serves one witness. Argument: ADDRESS. Each connection sends a line: "ask" is answered
// with the state; "say TEXT" prints the text; "gap" forgets the longest gap; "hold" keeps the
// connection and echoes its lines.
func witnessed(args []string) {
	w, err := newWitness()
	if err == nil {
		go w.tick()
		err = w.serve(args[0])
	}
	fmt.Fprintln(os.Stderr, "witness:", err)
	os.Exit(1)
}

func newWitness() (*witness, error) {
	w := &witness{token: rand.Text(), heap: make([]byte, 8<<20), want: rand.Text()}
	_, _ = rand.Read(w.heap)
	var err error
	if w.file, err = os.CreateTemp("/tmp", "witness"); err != nil {
		return nil, err
	}
	if _, err := w.file.WriteString(w.want); err != nil {
		return nil, err
	}
	if err := os.Remove(w.file.Name()); err != nil {
		return nil, err
	}
	child := exec.Command("/proc/self/exe", "echo")
	in, err := child.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, err
	}
	w.pipe = bufio.NewReadWriter(bufio.NewReader(out), bufio.NewWriter(in))
	w.loop, err = loopback()
	return w, err
}

// loopback returns a TCP connection from this process to itself.
func loopback() (*bufio.ReadWriter, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(c, c)
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	return bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)), nil
}

// echo is the process at the pipe's other end. It numbers the lines, so that a restarted one can be
// recognised.
func echo([]string) {
	in := bufio.NewScanner(os.Stdin)
	for n := 1; in.Scan(); n++ {
		fmt.Println(n, in.Text())
	}
}

func (w *witness) tick() {
	last := time.Now().Round(0) // without the monotonic clock, which may stand still
	for {
		time.Sleep(2 * time.Millisecond)
		now := time.Now().Round(0)
		if gap := int64(now.Sub(last)); gap > w.maxGap.Load() {
			w.maxGap.Store(gap)
		}
		last = now
		w.ticks.Add(1)
	}
}

func (w *witness) serve(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	control("witness", "ready")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go w.talk(c)
	}
}

func (w *witness) talk(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		return
	}
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch word {
	case "ask":
		_ = json.NewEncoder(c).Encode(w.answer())
	case "say":
		fmt.Println(rest)
		_, _ = fmt.Fprintln(c, "said")
	case "gap":
		w.maxGap.Store(0)
		_, _ = fmt.Fprintln(c, "forgotten")
	case "hold":
		h := &heldConn{}
		h.state.Store("open")
		w.mu.Lock()
		w.held = append(w.held, h)
		w.mu.Unlock()
		_, _ = fmt.Fprintln(c, "held")
		_, err := io.Copy(c, r)
		h.state.Store(fmt.Sprintf("closed: %v", err))
	}
}

func (w *witness) answer() answer {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := sha256.Sum256(w.heap)
	a := answer{PID: os.Getpid(), Token: w.token, Heap: hex.EncodeToString(sum[:]), Ticks: w.ticks.Load(),
		MaxGap: time.Duration(w.maxGap.Load()), Unix: time.Now().UnixNano(), File: w.readFile()}
	a.Pipe, a.Loop = ask(w.pipe), ask(w.loop)
	for _, h := range w.held {
		a.Held = append(a.Held, h.state.Load().(string))
	}
	a.Random = random()
	a.Hostname, _ = os.Hostname()
	return a
}

// readFile reads the open file without a name.
func (w *witness) readFile() string {
	b := make([]byte, len(w.want))
	if _, err := w.file.ReadAt(b, 0); err != nil || string(b) != w.want {
		return fmt.Sprintf("%q, %v", b, err)
	}
	return "ok"
}

// ask sends a line and returns the answer.
func ask(rw *bufio.ReadWriter) string {
	_, err := rw.WriteString("still there\n")
	if err == nil {
		err = rw.Flush()
	}
	if err != nil {
		return err.Error()
	}
	line, err := rw.ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

// random reads the kernel's generator directly, not one that a library keeps.
func random() string {
	f, err := os.Open("/dev/urandom")
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, 32)
	if _, err := io.ReadFull(f, b); err != nil {
		return ""
	}
	return hex.EncodeToString(b)
}

// printRandom prints the result of random.
func printRandom([]string) { fmt.Println(random()) }
