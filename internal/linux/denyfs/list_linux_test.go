package denyfs

import (
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// request is a request of the kernel's about a node.
func request(op uint32, node uint64) header { return header{op: op, unique: 7, node: node, pid: 1} }

// TestRootIsListed shows that the root directory, which no program sees, lists its entries in
// pieces of any size, and that a mask lists none.
func TestRootIsListed(t *testing.T) {
	var masks []Mask
	for i := range 120 {
		masks = append(masks, Mask{Path: fmt.Sprint("/secret/", i), Dir: i%3 == 0})
	}
	touches := 0
	s := &Server{masks: masks, touched: func(Touch) { touches++ }}
	le, out := binary.LittleEndian, make([]byte, 256)
	errno := func(b []byte) unix.Errno { return unix.Errno(-int32(le.Uint32(b[4:]))) }
	if b := s.answer(out, request(opOpendir, rootNode), make([]byte, 8)); errno(b) != 0 || len(b) != answerSize+16 {
		t.Fatalf("opendir: %x", b)
	}
	for _, room := range []uint32{200, 4096, 1 << 20} {
		next, seen := uint64(0), 0
		for {
			body := make([]byte, 40)
			le.PutUint64(body[8:], next)
			le.PutUint32(body[16:], room)
			b := s.answer(out, request(opReaddirplus, rootNode), body)
			if errno(b) != 0 || int(le.Uint32(b)) != len(b) || le.Uint64(b[8:]) != 7 || len(b) > answerSize+int(room) {
				t.Fatalf("list of %d bytes at most: %d bytes, %v", room, len(b), errno(b))
			}
			if b = b[answerSize:]; len(b) == 0 {
				break
			}
			for len(b) > 0 {
				d := b[entrySize:]
				name := string(d[direntSize : direntSize+le.Uint32(d[16:])])
				dir := le.Uint32(b[40+60:])&unix.S_IFMT == unix.S_IFDIR
				if name != fmt.Sprint(seen) || le.Uint64(b) != uint64(firstMask+seen) || dir != masks[seen].Dir || dir != (le.Uint32(d[20:]) == unix.DT_DIR) {
					t.Fatalf("entry %d: %q %x", seen, name, b[:entrySize])
				}
				next = le.Uint64(d[8:])
				seen++
				b = b[entrySize+(direntSize+len(name)+7)&^7:]
			}
		}
		if seen != len(masks) {
			t.Errorf("%d entries with %d bytes", seen, room)
		}
	}
	if b := s.answer(out, request(opReaddirplus, rootNode), make([]byte, 3)); errno(b) != unix.EINVAL {
		t.Errorf("a short question: %x", b)
	}
	if touches != 0 {
		t.Errorf("%d touches of what nobody sees", touches)
	}
	for _, op := range []uint32{opOpendir, opReaddirplus, opReleasedir} {
		if b := s.answer(out, request(op, firstMask), make([]byte, 40)); errno(b) != unix.EACCES {
			t.Errorf("operation %d of a mask: %v", op, errno(b))
		}
	}
	if touches != 3 {
		t.Errorf("%d touches of a mask", touches)
	}
}
