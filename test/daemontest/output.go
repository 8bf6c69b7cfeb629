package daemontest

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// Output collects what a program writes while it runs.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// String returns what was written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Until waits for a text.
func (o *Output) Until(t testing.TB, text string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !strings.Contains(o.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not say %q:\n%s", text, o)
		}
	}
}
