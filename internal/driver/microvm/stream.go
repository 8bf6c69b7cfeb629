//go:build linux

package microvm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// This file divides the stream in which QEMU saves a machine. The pages of the machine's memory go
// to a flat file, which a restored VMM maps. All else (the firmware's memory and the devices' state)
// stays a stream, which QEMU reads: it is told that the memory is there already. The VMM may be
// hostile, so nothing in the stream is believed. The form:
// https://www.qemu.org/docs/master/devel/migration/main.html

// Marks of a stream.
const (
	streamMagic    = 0x5145564d
	streamVersion  = 3
	markStart      = 0x01
	markPart       = 0x02
	markEnd        = 0x03
	markSubsection = 0x05
	markConfig     = 0x07
	markFooter     = 0x7e
)

// Flags in the low bits of an address.
const (
	flagZero     = 0x02
	flagSize     = 0x04
	flagPage     = 0x08
	flagEnd      = 0x10
	flagContinue = 0x20
	flagBits     = pageBytes - 1
)

const (
	pageBytes = 4096
	maxState  = 64 << 20 // bytes of the stream without the memory
	maxBlocks = 64
	maxPages  = 4 // records of one page, on average
)

// ramBlock is the name of the memory in the stream: its object's id on the command line.
const ramBlock = "ram"

// capability is the one capability of a migration that we use.
const capability = "x-ignore-shared"

// errStream is the error for a stream in another form.
var errStream = errors.New("the machine's state has a form that this build does not know")

// divider reads a stream.
type divider struct {
	in    *bufio.Reader
	state io.Writer
	ram   *ramWriter

	wrote   int64 // bytes to state
	records int64
	block   string // of the page records
	known   map[string]int64
	err     error
	scratch [pageBytes]byte
}

// divide reads a stream of a machine with ramBytes of memory to its end.
func divide(in io.Reader, ram io.WriterAt, ramBytes int64, state io.Writer) error {
	d := &divider{in: bufio.NewReaderSize(in, 1<<20), state: state, ram: newRAMWriter(ram, ramBytes), known: map[string]int64{}}
	d.header()
	for d.err == nil && !d.section() {
	}
	if d.err == nil {
		d.err = d.ram.flush()
	}
	if d.err != nil {
		return d.err
	}
	// The devices follow.
	n, err := io.Copy(state, io.LimitReader(d.in, maxState-d.wrote+1))
	if err == nil && d.wrote+n > maxState {
		err = fmt.Errorf("%w: it is larger than %d bytes", errStream, maxState)
	}
	return err
}

// fail notes the first error.
func (d *divider) fail(err error) {
	if d.err == nil && err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		d.err = err
	}
}

// strange notes that the stream has another form.
func (d *divider) strange(what string) { d.fail(fmt.Errorf("%w: %s", errStream, what)) }

// take reads n bytes. After an error it returns zeros.
func (d *divider) take(n int) []byte {
	b := make([]byte, n)
	if d.err == nil {
		_, err := io.ReadFull(d.in, b)
		d.fail(err)
	}
	if d.err != nil {
		clear(b)
	}
	return b
}

// takePage reads a page, which is valid until the next call.
func (d *divider) takePage() []byte {
	if d.err == nil {
		_, err := io.ReadFull(d.in, d.scratch[:])
		d.fail(err)
	}
	return d.scratch[:]
}

// put writes bytes to the state.
func (d *divider) put(b ...byte) {
	if d.err != nil {
		return
	}
	if d.wrote += int64(len(b)); d.wrote > maxState {
		d.strange("it is too large")
		return
	}
	_, err := d.state.Write(b)
	d.fail(err)
}

// pass reads n bytes, and writes them to the state.
func (d *divider) pass(n int) []byte {
	b := d.take(n)
	d.put(b...)
	return b
}

func (d *divider) pass8() byte    { return d.pass(1)[0] }
func (d *divider) pass32() uint32 { return binary.BigEndian.Uint32(d.pass(4)) }
func (d *divider) pass64() uint64 { return binary.BigEndian.Uint64(d.pass(8)) }

// passName passes a text whose length stands before it in one byte.
func (d *divider) passName() string { return string(d.pass(int(d.pass8()))) }

// header passes everything before the first section.
func (d *divider) header() {
	if d.pass32() != streamMagic || d.pass32() != streamVersion {
		d.strange("its head")
		return
	}
	if d.pass8() != markConfig {
		d.strange("it has no configuration")
		return
	}
	if n := d.pass32(); n > 256 {
		d.strange("the machine's name is too long")
	} else {
		d.pass(int(n))
	}
	for d.err == nil {
		next, err := d.in.Peek(1)
		if d.fail(err); d.err != nil || next[0] != markSubsection {
			return
		}
		d.subsection()
	}
}

// subsection passes one of the configuration's.
func (d *divider) subsection() {
	d.pass8()
	name := d.passName()
	d.pass32() // version
	switch name {
	case "configuration/target-page-bits":
		d.pass32()
	case "configuration/capabilities":
		n := d.pass32()
		if n > 64 {
			d.strange("too many capabilities")
			return
		}
		for range n {
			d.passName()
		}
	default:
		d.strange("configuration " + name)
	}
}

// section passes one section, and reports whether it was the memory's last one.
func (d *divider) section() (last bool) {
	mark := d.pass8()
	id := d.pass32()
	switch mark {
	case markStart:
		if name := d.passName(); name != ramBlock {
			d.strange("section " + name)
			return false
		}
		d.pass32() // instance
		d.pass32() // version
		d.blocks()
	case markPart, markEnd:
		d.pages()
	default:
		d.strange(fmt.Sprintf("section of type %d", mark))
	}
	if d.pass8() != markFooter || d.pass32() != id {
		d.strange("a section without a footer")
	}
	return mark == markEnd
}

// blocks passes the list of memories.
func (d *divider) blocks() {
	total := d.pass64()
	if total&flagBits != flagSize {
		d.strange("the size of the memory")
		return
	}
	for left := int64(total &^ flagBits); left > 0 && d.err == nil; {
		name := d.passName()
		size := int64(d.pass64())
		d.pass64() // the address, because of the capability
		if _, twice := d.known[name]; twice || size <= 0 || size > left || len(d.known) == maxBlocks {
			d.strange("memory " + name)
			return
		}
		d.known[name], left = size, left-size
	}
	if d.known[ramBlock] != d.ram.size {
		d.strange(fmt.Sprintf("the memory has %d bytes, not %d", d.known[ramBlock], d.ram.size))
	}
	if d.pass64() != flagEnd {
		d.strange("the list of memories")
	}
}

// pages reads records of pages until the end of the section.
func (d *divider) pages() {
	for d.err == nil {
		head := d.take(8)
		word := binary.BigEndian.Uint64(head)
		flags, at := word&flagBits, int64(word&^flagBits)
		if flags == flagEnd {
			d.put(head...)
			return
		}
		var name []byte
		if flags&flagContinue == 0 {
			length := d.take(1)
			name = append(length, d.take(int(length[0]))...)
			d.block = string(name[1:])
		}
		size, known := d.known[d.block]
		if d.records++; !known || at < 0 || at > size-pageBytes || d.records > maxPages*(d.ram.size/pageBytes+maxState/pageBytes) {
			d.strange("a page that the machine does not have")
			return
		}
		var data []byte
		switch flags &^ flagContinue {
		case flagZero:
			if data = d.take(1); data[0] != 0 {
				d.strange("a page of other bytes than zeros")
			}
		case flagPage:
			data = d.takePage()
		default:
			d.strange(fmt.Sprintf("a page with flags %#x", flags))
		}
		switch {
		case d.err != nil:
		case d.block != ramBlock:
			d.put(head...)
			d.put(name...)
			d.put(data...)
		case len(data) == pageBytes:
			d.fail(d.ram.page(at, data))
		default:
			d.fail(d.ram.zero(at))
		}
	}
}

// ramWriter writes pages into a file of zeros.
type ramWriter struct {
	out   io.WriterAt
	size  int64
	wrote []uint64 // a bit for each page that was written
	at    int64    // of pending
	// pending are pages that lie one behind the other.
	pending []byte
}

const maxPending = 256 << 10

func newRAMWriter(out io.WriterAt, size int64) *ramWriter {
	return &ramWriter{out: out, size: size, wrote: make([]uint64, size/pageBytes/64+1), pending: make([]byte, 0, maxPending)}
}

// page writes a page.
func (w *ramWriter) page(at int64, data []byte) error {
	if at != w.at+int64(len(w.pending)) || len(w.pending) == maxPending {
		if err := w.flush(); err != nil {
			return err
		}
		w.at = at
	}
	w.pending = append(w.pending, data...)
	n := at / pageBytes
	w.wrote[n/64] |= 1 << (n % 64)
	return nil
}

// zero writes a page of zeros. The file has them, unless the page was written before.
func (w *ramWriter) zero(at int64) error {
	if n := at / pageBytes; w.wrote[n/64]&(1<<(n%64)) == 0 {
		return nil
	}
	return w.page(at, make([]byte, pageBytes))
}

// flush writes what is pending.
func (w *ramWriter) flush() error {
	if len(w.pending) == 0 {
		return nil
	}
	_, err := w.out.WriteAt(w.pending, w.at)
	w.at, w.pending = 0, w.pending[:0]
	return err
}
