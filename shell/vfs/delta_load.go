package vfs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
)

// ErrFormat is the error of an encoding that was not written by Save.
var ErrFormat = errors.New("not a saved filesystem")

// decoder reads an encoding into a filesystem that no other goroutine uses yet.
type decoder struct {
	r     *bufio.Reader
	fs    *FS
	stack []loading
	nodes []uint64 // inode numbers, by a node's number in the encoding
}

// loading is a directory that is being filled.
type loading struct {
	dir   uint64
	mtime stamp
	last  string // the previous name: names come in order, so none can come twice
	any   bool
}

// Load makes a filesystem from base and the bytes that Save wrote. It trusts nothing: before it
// takes memory for a count or length, it charges the quota or checks a bound. The error is
// ErrFormat, or ENOSPC when o.Quota is too small.
func Load(r io.Reader, base *FS, o Options) (*FS, error) {
	d := &decoder{r: bufio.NewReaderSize(r, 16<<10), fs: base.Clone(o)}
	for {
		kind, err := d.r.ReadByte()
		if err != nil {
			return nil, d.end(err)
		}
		if kind == evEnd {
			break
		}
		if err := d.step(kind); err != nil {
			return nil, d.end(err)
		}
	}
	if len(d.stack) != 0 {
		return nil, fmt.Errorf("%w: a directory without an end", ErrFormat)
	}
	if _, err := d.r.ReadByte(); err != io.EOF {
		return nil, fmt.Errorf("%w: it goes on after its end", ErrFormat)
	}
	return d.fs, nil
}

// end converts an early end of input to ErrFormat.
func (d *decoder) end(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: it ends in the middle", ErrFormat)
	}
	return err
}

func (d *decoder) step(kind byte) error {
	if kind == evLeave {
		if len(d.stack) == 0 {
			return fmt.Errorf("%w: it leaves the root", ErrFormat)
		}
		top := d.stack[len(d.stack)-1]
		n := d.fs.mut(d.fs.nodes.get(top.dir))
		n.modified, n.accessed, n.changed = top.mtime, top.mtime, top.mtime
		d.stack = d.stack[:len(d.stack)-1]
		return nil
	}
	name, err := d.name(kind)
	if err != nil {
		return err
	}
	switch kind {
	case evEnter:
		return d.enter(name)
	case evGone:
		return d.drop(name)
	case evLink:
		return d.link(name)
	case evFile, evSymlink, evDevice, evFifo:
		return d.put(kind, name)
	}
	return fmt.Errorf("%w: step %q", ErrFormat, kind)
}

// name reads an entry's name. Only the root has none, and it comes first.
func (d *decoder) name(kind byte) (string, error) {
	name, err := d.text(maxName)
	switch {
	case err != nil:
		return "", err
	case len(d.stack) == 0:
		if kind != evEnter || name != "" || len(d.nodes) > 0 {
			return "", fmt.Errorf("%w: it does not begin with the root", ErrFormat)
		}
		return "", nil
	case name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00"):
		return "", fmt.Errorf("%w: the name %q", ErrFormat, name)
	}
	top := &d.stack[len(d.stack)-1]
	if top.any && name <= top.last {
		return "", fmt.Errorf("%w: the name %q after %q", ErrFormat, name, top.last)
	}
	top.last, top.any = name, true
	return name, nil
}

// dir returns the directory that is being filled.
func (d *decoder) dir() *node { return d.fs.nodes.get(d.stack[len(d.stack)-1].dir) }

// enter goes into a directory, and makes it if it is missing.
func (d *decoder) enter(name string) error {
	var n *node
	if len(d.stack) == 0 {
		n = d.fs.plain(d.fs.top)
	} else if n = d.fs.entry(d.dir(), name); n == nil || !n.isDir() {
		var err error
		if n, err = d.make(evEnter, name); err != nil {
			return err
		}
	}
	n = d.fs.mut(n)
	if err := d.attributes(n, evEnter); err != nil {
		return err
	}
	d.stack = append(d.stack, loading{dir: n.ino, mtime: n.modified})
	return nil
}

// make makes a new node. It replaces an existing entry of that name.
func (d *decoder) make(kind byte, name string) (*node, error) {
	if err := d.drop(name); err != nil {
		return nil, err
	}
	if err := d.fs.chargeNode(); err != nil {
		return nil, err
	}
	return d.fs.link(d.dir(), name, d.fs.newNode(typeOf(kind), Cred{})), nil
}

// drop removes the base's entry of a name.
func (d *decoder) drop(name string) error {
	dir := d.dir()
	if d.fs.entry(dir, name) == nil {
		return nil
	}
	err := d.fs.Root().removeTree(dir, name)
	if err == syscall.EBUSY {
		err = fmt.Errorf("%w: %q is in the place of a mount", ErrFormat, name)
	}
	return err
}

func (d *decoder) link(name string) error {
	i, err := d.number(uint64(len(d.nodes)))
	if err != nil {
		return err
	}
	if i >= uint64(len(d.nodes)) {
		return fmt.Errorf("%w: a link to number %d of %d", ErrFormat, i, len(d.nodes))
	}
	if err := d.drop(name); err != nil {
		return err
	}
	if err := d.fs.charge(linkCost); err != nil {
		return err
	}
	_ = d.fs.charge(-linkCost) // link takes it
	n := d.fs.nodes.get(d.nodes[i])
	if n == nil { // its name has been taken away
		return fmt.Errorf("%w: a link to a file that is gone", ErrFormat)
	}
	d.fs.link(d.dir(), name, n)
	return nil
}

// put makes a file, symbolic link or device.
func (d *decoder) put(kind byte, name string) error {
	n, err := d.make(kind, name)
	if err != nil {
		return err
	}
	d.nodes = append(d.nodes, n.ino)
	if err := d.attributes(n, kind); err != nil {
		return err
	}
	switch kind {
	case evSymlink:
		if n.text, err = d.text(maxPath - 1); err == nil && (n.text == "" || strings.IndexByte(n.text, 0) >= 0) {
			err = fmt.Errorf("%w: a link to %q", ErrFormat, n.text)
		}
		if err == nil {
			err = d.fs.charge(int64(len(n.text)))
		}
	case evFifo:
	case evDevice:
		n.text, err = d.text(16)
		_ = d.fs.charge(int64(len(n.text))) // a few bytes
		switch n.text {
		case "null", "zero", "full", "random":
		default:
			err = errors.Join(err, fmt.Errorf("%w: the device %q", ErrFormat, n.text))
		}
	default:
		err = d.contents(n)
	}
	return err
}

// attributes reads a node's mode, owner, time and user attributes.
func (d *decoder) attributes(n *node, kind byte) error {
	var v [6]uint64
	for i, most := range [6]uint64{1<<32 - 1, 1<<32 - 1, 1<<32 - 1, 1<<40 - 1, 1e9 - 1, maxAttrs} {
		var err error
		if v[i], err = d.number(most); err != nil {
			return err
		}
	}
	mode := fs.FileMode(v[0])
	if mode&^modeBits != typeOf(kind) {
		return fmt.Errorf("%w: the mode %v", ErrFormat, mode)
	}
	sec := int64(v[3]>>1) ^ -int64(v[3]&1)
	t := stamp{sec, int32(v[4])}
	if s, _ := clampTime(t); s != sec {
		return fmt.Errorf("%w: the time %d", ErrFormat, sec)
	}
	attrs, err := d.attrs(int(v[5]))
	if err != nil {
		return err
	}
	// Give back the cost of the attributes of the base's directory. New nodes have none.
	if err := d.fs.charge(-attrCost(n.attrs)); err != nil {
		return err
	}
	n.mode, n.uid, n.gid, n.attrs = mode, uint32(v[1]), uint32(v[2]), attrs
	n.modified, n.accessed, n.changed = t, t, t
	return nil
}

func (d *decoder) attrs(count int) (map[string]string, error) {
	if count == 0 {
		return nil, nil
	}
	attrs := map[string]string{}
	last := ""
	for i := range count {
		k, err := d.text(maxAttrName)
		if err != nil {
			return nil, err
		}
		if i > 0 && k <= last {
			return nil, fmt.Errorf("%w: the attribute %q after %q", ErrFormat, k, last)
		}
		v, err := d.text(maxAttrValue)
		if err == nil {
			err = d.fs.charge(xattrCost + int64(len(k)+len(v)))
		}
		if err != nil {
			return nil, err
		}
		attrs[k], last = v, k
	}
	return attrs, nil
}

// contents reads a file's size and blocks.
func (d *decoder) contents(n *node) error {
	size, err := d.number(maxSize)
	if err != nil {
		return err
	}
	n.size = int64(size)
	for {
		length, err := d.number(blockSize)
		if err != nil || length == 0 {
			return err
		}
		skip, err := d.number(maxSize / blockSize)
		if err != nil {
			return err
		}
		slots := int64(skip) + 1
		at := int64(len(n.blocks)) + slots - 1
		if at*blockSize+int64(length) > n.size {
			return fmt.Errorf("%w: contents after the end of a file", ErrFormat)
		}
		if err := d.fs.charge(slots*slotCost + int64(length)); err != nil {
			return err
		}
		n.blocks = append(n.blocks, make([]*block, slots)...)
		b := &block{gen: d.fs.gen, data: make([]byte, length)}
		if _, err := io.ReadFull(d.r, b.data); err != nil {
			return err
		}
		n.blocks[at] = b
	}
}

// number reads a varint up to most. It accepts only the shortest form of a number.
func (d *decoder) number(most uint64) (uint64, error) {
	var n uint64
	for shift := uint(0); shift < 63; shift += 7 {
		b, err := d.r.ReadByte()
		if err != nil {
			return 0, err
		}
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			if n > most || b == 0 && shift > 0 {
				return 0, fmt.Errorf("%w: the number %d", ErrFormat, n)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("%w: a number without an end", ErrFormat)
}

// text reads a text of at most most bytes.
func (d *decoder) text(most uint64) (string, error) {
	n, err := d.number(most)
	if err != nil {
		return "", err
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(d.r, b); err != nil {
		return "", err
	}
	return string(b), nil
}
