package daemontest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
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

// String returns the output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Until waits for a text.
func (o *Output) Until(t testing.TB, text string) {
	t.Helper()
	err := testenv.Within(context.Background(), 2*time.Minute, func() error {
		if said := o.String(); !strings.Contains(said, text) {
			return fmt.Errorf("it did not say %q:\n%s", text, said)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
