package callback

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
)

// noFiles is an empty disk.
type noFiles struct{ carrel.ProgramFiles }

func (noFiles) Stat(string) (fs.FileInfo, error)            { return nil, fs.ErrNotExist }
func (noFiles) ReadFile(string) ([]byte, error)             { return nil, fs.ErrNotExist }
func (noFiles) ReadDir(string) ([]fs.FileInfo, error)       { return nil, fs.ErrPermission }
func (noFiles) WriteFile(string, []byte, fs.FileMode) error { return fs.ErrExist }
func (noFiles) MkdirAll(string, fs.FileMode) error          { return nil }
func (noFiles) Remove(string) error                         { return nil }
func (noFiles) Rename(string, string) error                 { return nil }

func newCall(in string) (*carrel.ProgramCall, *bytes.Buffer, *bytes.Buffer) {
	var out, errs bytes.Buffer
	return &carrel.ProgramCall{Name: "p", Stdin: strings.NewReader(in), Stdout: &out, Stderr: &errs, Files: noFiles{}}, &out, &errs
}

func TestBoth(t *testing.T) {
	here, there := net.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- Answer(t.Context(), there, carrel.NewID(), Call{Name: "p"}, func(_ context.Context, c *carrel.ProgramCall) int {
			b, err := io.ReadAll(c.Stdin)
			if err != nil {
				return 1
			}
			if _, err := c.Files.ReadFile("x"); err == nil {
				return 2
			}
			if _, err := c.Stdout.Write(b); err != nil {
				return 3
			}
			return 77
		})
	}()
	text := strings.Repeat("0123456789", 50_000)
	c, out, _ := newCall(text)
	if status := Relay(t.Context(), here, c); status != 77 || out.String() != text {
		t.Errorf("status %d, %d bytes", status, out.Len())
	}
	here.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestGone shows that a program fails if its provider goes, whatever status it returns.
func TestGone(t *testing.T) {
	for range 500 {
		here, there := net.Pipe()
		ctx, vanish := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- Answer(ctx, there, carrel.NewID(), Call{Name: "p"}, func(ctx context.Context, _ *carrel.ProgramCall) int {
				vanish()
				<-ctx.Done()
				return 0
			})
		}()
		c, _, errs := newCall("")
		if status := Relay(t.Context(), here, c); status != 126 || !strings.Contains(errs.String(), "who provides it has gone") {
			t.Fatalf("status %d, %q", status, errs)
		}
		here.Close()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
}

// conn is a provider that sends fixed bytes, and accepts everything.
type conn struct{ io.Reader }

func (conn) Write(b []byte) (int, error) { return len(b), nil }
func (conn) Close() error                { return nil }

func FuzzRelay(f *testing.F) {
	f.Add([]byte("o\x00\x00\x00\x02hix\x00\x00\x00\x04\x00\x00\x00\x05"))
	f.Add([]byte("r\x00\x00\x00\x04\x00\x00\x10\x00f\x00\x00\x00\x1b{\"op\":\"read\",\"name\":\"/etc\"}"))
	f.Add([]byte("o\x7f\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, out, _ := newCall("input")
		status := Relay(t.Context(), conn{bytes.NewReader(data)}, c)
		if status < 0 || status > 255 || out.Len() > len(data) {
			t.Errorf("%d", status)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("i\x00\x00\x00\x02hiF\x00\x00\x00\x02{}i\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = Answer(t.Context(), conn{bytes.NewReader(data)}, "", Call{}, func(_ context.Context, c *carrel.ProgramCall) int {
			_, _ = io.ReadAll(io.LimitReader(c.Stdin, 1<<16))
			_, _ = c.Files.Stat("x")
			_, _ = c.Files.ReadDir("x")
			return 0
		})
	})
}
