package main

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// uringRead reads a file by a ring, so the kernel's own threads open it.
func uringRead(ring int, params *[120]byte, path string) ([]byte, error) {
	at := func(off int) uint32 { return binary.NativeEndian.Uint32(params[off:]) }
	entries := at(0)
	sq, err := unix.Mmap(ring, 0, int(at(40+24)+entries*4), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	cq, err := unix.Mmap(ring, 0x8000000, int(at(80+20)+at(4)*16), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	sqes, err := unix.Mmap(ring, 0x10000000, int(entries*64), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	word := func(b []byte, off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&b[off])) }
	submit := func(op byte, fd int32, address uint64, length uint32) (int32, error) {
		clear(sqes[:64])
		sqes[0] = op
		binary.NativeEndian.PutUint32(sqes[4:], uint32(fd))
		binary.NativeEndian.PutUint64(sqes[16:], address)
		binary.NativeEndian.PutUint32(sqes[24:], length)
		tail := word(sq, at(40+4))
		*word(sq, at(40+24)+(*tail&(entries-1))*4) = 0
		atomic.AddUint32(tail, 1)
		if _, _, e := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(ring), 1, 1, 1, 0, 0); e != 0 {
			return 0, e
		}
		head := word(cq, at(80))
		entry := at(80+20) + (*head&(at(4)-1))*16
		result := int32(*word(cq, entry+8))
		atomic.AddUint32(head, 1)
		return result, nil
	}
	const openat, read = 18, 22
	fd, err := submit(openat, unix.AT_FDCWD, uint64(uintptr(cstring(path))), 0)
	if err == nil && fd < 0 {
		err = unix.Errno(-fd)
	}
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 200)
	n, err := submit(read, fd, uint64(uintptr(unsafe.Pointer(&buf[0]))), uint32(len(buf)))
	if n < 0 {
		err = unix.Errno(-n)
	}
	return buf[:max(n, 0)], err
}
