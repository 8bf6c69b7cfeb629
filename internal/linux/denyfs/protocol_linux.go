package denyfs

import (
	"encoding/binary"
	"strconv"

	"golang.org/x/sys/unix"
)

// The operations that need different answers, from linux/fuse.h.
const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opSetattr     = 4
	opOpen        = 14
	opStatfs      = 17
	opSetxattr    = 21
	opGetxattr    = 22
	opListxattr   = 23
	opRemovexattr = 24
	opInit        = 26
	opOpendir     = 27
	opReleasedir  = 29
	opAccess      = 34
	opInterrupt   = 36
	opDestroy     = 38
	opBatchForget = 42
	opReaddirplus = 44
	opStatx       = 52
)

const (
	headerSize = 40 // struct fuse_in_header
	answerSize = 16 // struct fuse_out_header
	// bufferSize is the smallest buffer that the kernel accepts. No request that matters is larger.
	bufferSize = 8192

	entrySize  = 128 // struct fuse_entry_out
	direntSize = 24  // struct fuse_dirent without the name
	listSize   = 32 << 10

	rootNode  = 1
	firstMask = 2 // node of mask 0

	// forever is how many seconds the kernel may cache our answers: masks don't change.
	forever = 10 * 365 * 24 * 3600
)

// header is the start of a request.
type header struct {
	length, op   uint32
	unique, node uint64
	uid, gid     uint32
	pid          uint32
}

// parse splits a request. The kernel uses the machine's byte order, and both our architectures are
// little-endian.
func parse(b []byte) (h header, body []byte, ok bool) {
	if len(b) < headerSize {
		return h, nil, false
	}
	le := binary.LittleEndian
	h = header{length: le.Uint32(b), op: le.Uint32(b[4:]), unique: le.Uint64(b[8:]), node: le.Uint64(b[16:]),
		uid: le.Uint32(b[24:]), gid: le.Uint32(b[28:]), pid: le.Uint32(b[32:])}
	if int(h.length) != len(b) {
		return h, nil, false
	}
	return h, b[headerSize:], true
}

// answer begins an answer in out: an error, or a body of n zero bytes. The caller fills the body.
func answer(out []byte, h header, errno unix.Errno, n int) []byte {
	out = out[:answerSize+n]
	clear(out)
	le := binary.LittleEndian
	le.PutUint32(out, uint32(len(out)))
	le.PutUint32(out[4:], uint32(-int32(errno)))
	le.PutUint64(out[8:], h.unique)
	return out
}

// welcome answers INIT: version 7.31, hardly a feature, no read-ahead, the smallest writes.
func welcome(out []byte, h header) []byte {
	out = answer(out, h, 0, 64)
	le, b := binary.LittleEndian, out[answerSize:]
	le.PutUint32(b, 7)
	le.PutUint32(b[4:], 31)
	const listsWithAttributes, parallelLookups = 1 << 13, 1 << 18
	le.PutUint32(b[12:], listsWithAttributes|parallelLookups)
	le.PutUint32(b[20:], 4096)
	le.PutUint32(b[24:], 1)
	return out
}

// attributes fills a struct fuse_attr: a name without permissions.
func attributes(b []byte, node uint64, dir bool, uid, gid uint32) {
	le := binary.LittleEndian
	mode, links := uint32(unix.S_IFREG), uint32(1)
	if dir {
		mode, links = unix.S_IFDIR, 2
	}
	le.PutUint64(b, node)
	le.PutUint32(b[60:], mode)
	le.PutUint32(b[64:], links)
	le.PutUint32(b[68:], uid)
	le.PutUint32(b[72:], gid)
	le.PutUint32(b[80:], 4096)
}

// entry answers LOOKUP with a node.
func entry(out []byte, h header, node uint64, dir bool, uid, gid uint32) []byte {
	out = answer(out, h, 0, entrySize)
	found(out[answerSize:], node, dir, uid, gid)
	return out
}

// found fills a struct fuse_entry_out.
func found(b []byte, node uint64, dir bool, uid, gid uint32) {
	le := binary.LittleEndian
	le.PutUint64(b, node)
	le.PutUint64(b[16:], forever)
	le.PutUint64(b[24:], forever)
	attributes(b[40:], node, dir, uid, gid)
}

// list answers READDIRPLUS of the root directory: names and what is found behind them, from an
// offset on, as many as the kernel has room for.
func list(h header, body []byte, masks []Mask, uid, gid uint32) []byte {
	le := binary.LittleEndian
	if len(body) < 20 {
		return answer(make([]byte, answerSize), h, unix.EINVAL, 0)
	}
	from, room := le.Uint64(body[8:]), min(int(le.Uint32(body[16:])), listSize)
	out := make([]byte, answerSize, answerSize+room)
	for i := from; i < uint64(len(masks)); i++ {
		name := strconv.FormatUint(i, 10)
		size := entrySize + (direntSize+len(name)+7)&^7
		if len(out)-answerSize+size > room {
			break
		}
		e := make([]byte, size)
		kind := uint32(unix.DT_REG)
		if masks[i].Dir {
			kind = unix.DT_DIR
		}
		found(e, firstMask+i, masks[i].Dir, uid, gid)
		d := e[entrySize:]
		le.PutUint64(d, firstMask+i)
		le.PutUint64(d[8:], i+1)
		le.PutUint32(d[16:], uint32(len(name)))
		le.PutUint32(d[20:], kind)
		copy(d[direntSize:], name)
		out = append(out, e...)
	}
	le.PutUint32(out, uint32(len(out)))
	le.PutUint64(out[8:], h.unique)
	return out
}

// stat answers GETATTR.
func stat(out []byte, h header, dir bool, uid, gid uint32) []byte {
	out = answer(out, h, 0, 104)
	le, b := binary.LittleEndian, out[answerSize:]
	le.PutUint64(b, forever)
	attributes(b[16:], h.node, dir, uid, gid)
	return out
}

// statfs answers STATFS: an empty filesystem, so that df does not complain.
func statfs(out []byte, h header) []byte {
	out = answer(out, h, 0, 80)
	le, b := binary.LittleEndian, out[answerSize:]
	le.PutUint32(b[40:], 4096)
	le.PutUint32(b[44:], 255)
	le.PutUint32(b[48:], 4096)
	return out
}

// index returns the number of the mask with a name in the root directory. n is the number of masks.
func index(name string, n int) (int, bool) {
	i, err := strconv.Atoi(name)
	return i, err == nil && i >= 0 && i < n && strconv.Itoa(i) == name
}
