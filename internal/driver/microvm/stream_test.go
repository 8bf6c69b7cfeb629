//go:build linux

package microvm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// testRAM is the size of the memory in written streams.
const testRAM = 16 * pageBytes

// streamBuilder writes streams in QEMU's form.
type streamBuilder struct{ bytes.Buffer }

func (b *streamBuilder) num(values ...any) *streamBuilder {
	for _, v := range values {
		_ = binary.Write(b, binary.BigEndian, v)
	}
	return b
}

func (b *streamBuilder) name(s string) *streamBuilder {
	b.WriteByte(byte(len(s)))
	b.WriteString(s)
	return b
}

// page is a page full of one byte.
func page(c byte) string { return strings.Repeat(string(rune(c)), pageBytes) }

// head begins a stream with a memory and a firmware of one page.
func (b *streamBuilder) head(ram int64) *streamBuilder {
	b.num(uint32(streamMagic), uint32(streamVersion), uint8(markConfig), uint32(7))
	b.WriteString("microvm")
	b.num(uint8(markSubsection)).name("configuration/capabilities").num(uint32(1), uint32(1)).name(capability)
	b.num(uint8(markStart), uint32(2)).name(ramBlock).num(uint32(0), uint32(4))
	b.num(uint64(ram+pageBytes)|flagSize).name(ramBlock).num(uint64(ram), uint64(0)).name("bios").num(uint64(pageBytes), uint64(0xffff0000))
	return b.num(uint64(flagEnd), uint8(markFooter), uint32(2))
}

// whole is a good stream: page 1 is written twice, page 2 becomes zero again, page 3 always was.
func whole() []byte {
	var b streamBuilder
	b.head(testRAM)
	b.num(uint8(markPart), uint32(2))
	b.num(uint64(pageBytes | flagPage)).name(ramBlock).WriteString(page('a'))
	b.num(uint64(2*pageBytes | flagPage | flagContinue)).WriteString(page('b'))
	b.num(uint64(3*pageBytes|flagZero|flagContinue), uint8(0), uint64(flagEnd), uint8(markFooter), uint32(2))
	b.num(uint8(markEnd), uint32(2))
	b.num(uint64(pageBytes | flagPage | flagContinue)).WriteString(page('c'))
	b.num(uint64(2*pageBytes|flagZero|flagContinue), uint8(0))
	b.num(uint64(flagPage)).name("bios").WriteString(page('r'))
	b.num(uint64(flagEnd), uint8(markFooter), uint32(2))
	b.WriteString("the devices")
	return b.Bytes()
}

// memory is a file in memory.
type memory []byte

// WriteAt implements io.WriterAt.
func (m memory) WriteAt(b []byte, at int64) (int, error) { return copy(m[at:], b), nil }

func TestDivide(t *testing.T) {
	ram, state := make(memory, testRAM), &bytes.Buffer{}
	if err := divide(bytes.NewReader(whole()), ram, testRAM, state); err != nil {
		t.Fatal(err)
	}
	want := page(0) + page('c') + page(0)
	if string(ram[:3*pageBytes]) != want || !bytes.Equal(ram[3*pageBytes:], make([]byte, testRAM-3*pageBytes)) {
		t.Error("the memory is another")
	}
	got := state.Bytes()
	if bytes.Contains(got, []byte(page('c'))) || !bytes.Contains(got, []byte(page('r'))) || !bytes.HasSuffix(got, []byte("the devices")) {
		t.Errorf("the state has %d bytes and ends %q", len(got), got[max(0, len(got)-20):])
	}
	// What is left is a stream of the same form, without the memory's pages.
	again := &bytes.Buffer{}
	if err := divide(bytes.NewReader(got), make(memory, testRAM), testRAM, again); err != nil || !bytes.Equal(again.Bytes(), got) {
		t.Errorf("the state is divided to %d of %d bytes, %v", again.Len(), len(got), err)
	}
}

// TestDivideHostile reads streams of a VMM that was taken over.
func TestDivideHostile(t *testing.T) {
	pages := func(f func(b *streamBuilder)) []byte {
		var b streamBuilder
		f(b.head(testRAM).num(uint8(markEnd), uint32(2)))
		b.num(uint64(flagEnd), uint8(markFooter), uint32(2))
		return b.Bytes()
	}
	var other streamBuilder
	other.head(2 * testRAM)
	for name, in := range map[string][]byte{
		"nothing":         {},
		"no stream":       bytes.Repeat([]byte("x"), 1000),
		"cut off":         whole()[:len(whole())/2],
		"another size":    other.Bytes(),
		"behind the end":  pages(func(b *streamBuilder) { b.num(uint64(testRAM | flagPage)).name(ramBlock).WriteString(page('x')) }),
		"far behind":      pages(func(b *streamBuilder) { b.num(uint64(1<<63 | flagPage)).name(ramBlock).WriteString(page('x')) }),
		"unknown memory":  pages(func(b *streamBuilder) { b.num(uint64(flagPage)).name("other").WriteString(page('x')) }),
		"without a name":  pages(func(b *streamBuilder) { b.num(uint64(flagPage | flagContinue)).WriteString(page('x')) }),
		"another filling": pages(func(b *streamBuilder) { b.num(uint64(flagZero)).name(ramBlock).num(uint8(1)) }),
		"another flag":    pages(func(b *streamBuilder) { b.num(uint64(0x40)).name(ramBlock).num(uint8(1)) }),
	} {
		if err := divide(bytes.NewReader(in), make(memory, testRAM), testRAM, io.Discard); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	// One that never ends.
	var b streamBuilder
	b.head(testRAM).num(uint8(markPart), uint32(2), uint64(flagZero)).name(ramBlock).num(uint8(0))
	r, w := io.Pipe()
	defer r.Close()
	go func() {
		_, err := w.Write(b.Bytes())
		more := (&streamBuilder{}).num(uint64(flagZero|flagContinue), uint8(0)).Bytes()
		more = bytes.Repeat(more, 1000)
		for err == nil {
			_, err = w.Write(more)
		}
	}()
	if err := divide(r, make(memory, testRAM), testRAM, io.Discard); !errors.Is(err, errStream) {
		t.Errorf("an endless stream: %v", err)
	}
}

// FuzzDivide reads streams that are none.
func FuzzDivide(f *testing.F) {
	f.Add(whole())
	f.Add(whole()[:3000])
	f.Add([]byte{})
	f.Fuzz(func(_ *testing.T, in []byte) {
		_ = divide(bytes.NewReader(in), make(memory, testRAM), testRAM, io.Discard)
	})
}

// FuzzReply reads answers of a monitor that is none.
func FuzzReply(f *testing.F) {
	f.Add([]byte(`{"return": {}}`))
	f.Add([]byte(`{"error": {"class": "GenericError", "desc": "\u001b[2J"}}`))
	f.Add([]byte(`{"return": 1, "error": null}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if _, err := parseReply(line); err != nil && strings.ContainsRune(err.Error(), 0x1b) {
			t.Errorf("%q moves the cursor", err)
		}
	})
}

// TestHostileMonitor talks with monitors that answer wrongly, too much, or not at all.
func TestHostileMonitor(t *testing.T) {
	for name, talk := range map[string]func(c net.Conn) error{
		"no text": func(c net.Conn) error { _, err := c.Write([]byte("\x00\xff\n")); return err },
		"a line without an end": func(c net.Conn) (err error) {
			for err == nil {
				_, err = c.Write(bytes.Repeat([]byte("x"), 4096))
			}
			return err
		},
		"events without an end": func(c net.Conn) (err error) {
			for err == nil {
				_, err = c.Write([]byte(`{"event": "RESET"}` + "\n"))
			}
			return err
		},
		"an error": func(c net.Conn) error { _, err := c.Write([]byte(`{"error": {"desc": "no"}}` + "\n")); return err },
		"nothing":  func(c net.Conn) error { _, err := io.Copy(io.Discard, c); return err },
		"the end":  func(c net.Conn) error { return c.Close() },
		"a status of none": func(c net.Conn) error {
			_, err := c.Write([]byte(`{"return": {}}` + "\n" + `{"return": [1]}` + "\n"))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f, err := listenControl(dir)
			if err != nil {
				t.Fatal(err)
			}
			ln, err := net.FileListener(f)
			f.Close()
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				if c, err := ln.Accept(); err == nil {
					_ = talk(c)
					_, _ = io.Copy(io.Discard, c)
					c.Close()
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			q, err := dialControl(ctx, dir, nil)
			if err == nil {
				_, err = q.await(ctx, "query-status", func(s string) bool { return s == "paused" })
				q.close()
			}
			if err == nil {
				t.Error("it was believed")
			}
			ln.Close()
			<-done
		})
	}
}

// TestSealed shows that sandboxes share one copy of a memory, which nobody can change.
func TestSealed(t *testing.T) {
	name := filepath.Join(t.TempDir(), ramFile)
	if err := os.WriteFile(name, append([]byte("memory"), make([]byte, 1<<20)...), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var m memories
	one, err := m.use(t.Context(), f, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	two, err := m.use(t.Context(), f, 1<<20)
	if err != nil || one != two {
		t.Errorf("the second is another copy, %v", err)
	}
	if _, err := one.file.WriteAt([]byte("x"), 0); err == nil {
		t.Error("it was written to")
	}
	if err := one.file.Truncate(0); err == nil {
		t.Error("it was cut")
	}
	b := make([]byte, 6)
	if _, err := one.file.ReadAt(b, 0); err != nil || string(b) != "memory" {
		t.Errorf("it holds %q, %v", b, err)
	}
	m.leave(one)
	if _, err := two.file.Stat(); err != nil {
		t.Error("it was closed while it was used")
	}
	m.leave(two)
	m.close()
	if len(m.known) != 0 {
		t.Error("it is still known")
	}
}

// TestOtherHost shows that memory of another QEMU, accelerator or processor is refused.
func TestOtherHost(t *testing.T) {
	m := &machine{accel: tcg, version: "QEMU emulator version 7.2.22", cpu: tcg}
	for name, other := range map[string]*machine{
		"qemu": {accel: tcg, version: "QEMU emulator version 9.0.0"}, "accelerator": {accel: kvm, version: m.version}} {
		if m.build() == other.build() {
			t.Errorf("%s: the builds are the same: %s", name, m.build())
		}
	}
	m.tscKHz = 2_596_126
	for cpu, want := range map[string]bool{"tcg 2596126": true, "tcg 2596900": true, "tcg 2600000": false, "tcg": false, "tcg 2596126 avx": false, "kvm 2596126": false, "": false} {
		if m.sees(cpu) != want {
			t.Errorf("a machine of %q may run: %v", cpu, !want)
		}
	}
	if carrel.KindOf(damaged("x")) != carrel.Invalid {
		t.Error("damage is not invalid")
	}
}
