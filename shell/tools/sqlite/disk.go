package sqlite

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// disk is the VFS of one run: the machine's filesystem with the rights of the process.
type disk struct {
	c    *tool.Call
	tls  *libc.TLS
	id   uintptr
	name string
	vfs  uintptr
}

var (
	disks  sync.Map // id → *disk
	lastID atomic.Uintptr
	opened sync.Map // maps the address of a sqlite3_file to its *file
)

func diskOf(id uintptr) *disk {
	d, _ := disks.Load(id)
	x, _ := d.(*disk)
	return x
}

// mem returns a pointer to an address of C's memory.
func mem[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

// pointer returns the address of a Go function in the form for C. f must be a plain function, not a
// closure.
func pointer[T any](f T) uintptr { return *(*uintptr)(unsafe.Pointer(&struct{ f T }{f})) }

// methods are the functions of files. All files share them, and they are never freed.
var methods = sync.OnceValue(func() uintptr {
	tls := libc.NewTLS()
	defer tls.Close()
	p := libc.Xcalloc(tls, 1, libc.Tsize_t(unsafe.Sizeof(lib.Tsqlite3_io_methods{})))
	*mem[lib.Tsqlite3_io_methods](p) = lib.Tsqlite3_io_methods{
		FiVersion: 2, FxClose: pointer(fileClose), FxRead: pointer(fileRead), FxWrite: pointer(fileWrite), FxTruncate: pointer(fileTruncate),
		FxSync: pointer(fileSync), FxFileSize: pointer(fileSize), FxLock: pointer(fileLock), FxUnlock: pointer(fileUnlock),
		FxCheckReservedLock: pointer(fileReserved), FxFileControl: pointer(fileControl), FxSectorSize: pointer(fileSector),
		FxDeviceCharacteristics: pointer(fileTraits), FxShmMap: pointer(shmMap), FxShmLock: pointer(shmLock),
		FxShmBarrier: pointer(shmBarrier), FxShmUnmap: pointer(shmUnmap),
	}
	return p
})

// prepareLibrary makes SQLite use UTC as its local time, as the machine does. Otherwise it would
// read the host's time zone.
var prepareLibrary = sync.OnceFunc(func() {
	tls := libc.NewTLS()
	defer tls.Close()
	lib.Xsqlite3_initialize(tls)
	va := libc.NewVaList(int32(2), pointer(localTime))
	defer libc.Xfree(tls, va)
	lib.Xsqlite3_test_control(tls, lib.SQLITE_TESTCTRL_LOCALTIME_FAULT, va)
})

// localTime splits a time into its parts, as UTC.
func localTime(tls *libc.TLS, t, tm uintptr) int32 {
	libc.Xgmtime_r(tls, t, tm)
	return 0
}

// newDisk registers the VFS of a run.
func newDisk(c *tool.Call) *disk {
	d := &disk{c: c, tls: libc.NewTLS(), id: lastID.Add(1)}
	prepareLibrary()
	d.name = fmt.Sprintf("carrel%d", d.id)
	d.vfs = libc.Xcalloc(d.tls, 1, libc.Tsize_t(unsafe.Sizeof(lib.Tsqlite3_vfs{})))
	*mem[lib.Tsqlite3_vfs](d.vfs) = lib.Tsqlite3_vfs{
		FiVersion: 2, FszOsFile: int32(unsafe.Sizeof(lib.Tsqlite3_file{})), FmxPathname: 4096, FzName: cstring(d.tls, d.name),
		FpAppData: d.id, FxOpen: pointer(diskOpen), FxDelete: pointer(diskDelete), FxAccess: pointer(diskAccess),
		FxFullPathname: pointer(diskFull), FxRandomness: pointer(diskRandom), FxSleep: pointer(diskSleep),
		FxCurrentTime: pointer(diskTime), FxGetLastError: pointer(diskLastError), FxCurrentTimeInt64: pointer(diskTime64),
	}
	disks.Store(d.id, d)
	lib.Xsqlite3_vfs_register(d.tls, d.vfs, 0)
	return d
}

// close is called when all connections are closed.
func (d *disk) close() {
	lib.Xsqlite3_vfs_unregister(d.tls, d.vfs)
	disks.Delete(d.id)
	libc.Xfree(d.tls, mem[lib.Tsqlite3_vfs](d.vfs).FzName)
	libc.Xfree(d.tls, d.vfs)
	d.tls.Close()
}

func ofVFS(p uintptr) *disk { return diskOf(mem[lib.Tsqlite3_vfs](p).FpAppData) }

// file is an open file, or a temporary file in memory.
type file struct {
	d     *disk
	f     *vfs.File
	mem   []byte
	path  string
	gone  bool // to be removed when it is closed
	level int32
	lock  *lock
	key   lockKey
	slots [shmSlots]int8 // 1: shared, 2: exclusive
	shm   bool
}

func diskOpen(_ *libc.TLS, p, name, at uintptr, flags int32, out uintptr) int32 {
	d := ofVFS(p)
	*mem[lib.Tsqlite3_file](at) = lib.Tsqlite3_file{}
	if d == nil {
		return lib.SQLITE_CANTOPEN
	}
	x := &file{d: d}
	if name != 0 {
		x.path = libc.GoString(name)
		x.gone = flags&lib.SQLITE_OPEN_DELETEONCLOSE != 0
		how := vfs.ReadOnly
		if flags&lib.SQLITE_OPEN_READWRITE != 0 {
			how = vfs.ReadWrite
		}
		if flags&lib.SQLITE_OPEN_CREATE != 0 {
			how |= vfs.CreateNew
		}
		if flags&lib.SQLITE_OPEN_EXCLUSIVE != 0 {
			how |= vfs.Exclusive
		}
		perm := 0o644 &^ d.c.Umask()
		f, err := d.c.FS().OpenFile(x.path, how, perm)
		if err != nil && how&vfs.WriteOnly != 0 && (errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EROFS)) {
			flags = flags&^(lib.SQLITE_OPEN_READWRITE|lib.SQLITE_OPEN_CREATE) | lib.SQLITE_OPEN_READONLY
			f, err = d.c.FS().OpenFile(x.path, vfs.ReadOnly, 0)
		}
		if err != nil {
			return lib.SQLITE_CANTOPEN
		}
		info, err := f.Stat()
		if err != nil || !info.Mode.IsRegular() {
			_ = f.Close() // not a file
			return lib.SQLITE_CANTOPEN
		}
		x.f = f
		if flags&lib.SQLITE_OPEN_MAIN_DB != 0 {
			x.attach(lockKey{d.c.FS().FS(), info.Ino})
		}
	}
	if out != 0 {
		*mem[int32](out) = flags
	}
	opened.Store(at, x)
	mem[lib.Tsqlite3_file](at).FpMethods = methods()
	return lib.SQLITE_OK
}

func diskDelete(_ *libc.TLS, p, name uintptr, _ int32) int32 {
	err := ofVFS(p).c.FS().Remove(libc.GoString(name))
	switch {
	case err == nil:
		return lib.SQLITE_OK
	case errors.Is(err, fs.ErrNotExist):
		return lib.SQLITE_IOERR_DELETE_NOENT
	}
	return lib.SQLITE_IOERR_DELETE
}

func diskAccess(_ *libc.TLS, p, name uintptr, flags int32, out uintptr) int32 {
	view := ofVFS(p).c.FS()
	info, err := view.Stat(libc.GoString(name))
	yes := err == nil && (flags != lib.SQLITE_ACCESS_EXISTS || !info.Mode.IsRegular() || info.Size > 0)
	if yes && flags == lib.SQLITE_ACCESS_READWRITE {
		yes = view.Access(libc.GoString(name), vfs.MayRead|vfs.MayWrite) == nil
	}
	*mem[int32](out) = 0
	if yes {
		*mem[int32](out) = 1
	}
	return lib.SQLITE_OK
}

func diskFull(_ *libc.TLS, p, name uintptr, n int32, out uintptr) int32 {
	s := ofVFS(p).c.Abs(libc.GoString(name))
	if len(s)+1 > int(n) {
		return lib.SQLITE_CANTOPEN
	}
	b := unsafe.Slice(mem[byte](out), len(s)+1)
	copy(b, s)
	b[len(s)] = 0
	return lib.SQLITE_OK
}

func diskRandom(_ *libc.TLS, _ uintptr, n int32, out uintptr) int32 {
	_, _ = rand.Read(unsafe.Slice(mem[byte](out), n)) // never fails
	return n
}

func diskSleep(_ *libc.TLS, p uintptr, micros int32) int32 {
	ofVFS(p).c.Sleep(microseconds(micros))
	return micros
}

const julianUnix = 210866760000000 // milliseconds from the start of the Julian epoch to that of Unix

func diskTime64(_ *libc.TLS, p, out uintptr) int32 {
	*mem[int64](out) = ofVFS(p).c.Now().UnixMilli() + julianUnix
	return lib.SQLITE_OK
}

func diskTime(_ *libc.TLS, p, out uintptr) int32 {
	*mem[float64](out) = float64(ofVFS(p).c.Now().UnixMilli()+julianUnix) / 86400000
	return lib.SQLITE_OK
}

func diskLastError(*libc.TLS, uintptr, int32, uintptr) int32 { return 0 }

func fileOf(at uintptr) *file {
	f, _ := opened.Load(at)
	x, _ := f.(*file)
	return x
}

func fileClose(_ *libc.TLS, at uintptr) int32 {
	x := fileOf(at)
	if x == nil {
		return lib.SQLITE_OK
	}
	opened.Delete(at)
	x.detach()
	if x.f == nil {
		_ = x.d.c.Pay(-int64(cap(x.mem)))
		return lib.SQLITE_OK
	}
	_ = x.f.Close() // nothing is buffered
	if x.gone {
		_ = x.d.c.FS().Remove(x.path) // its own
	}
	return lib.SQLITE_OK
}

func fileRead(_ *libc.TLS, at, buf uintptr, n int32, off int64) int32 {
	x := fileOf(at)
	b := unsafe.Slice(mem[byte](buf), n)
	got := 0
	if x.f == nil {
		if off < int64(len(x.mem)) {
			got = copy(b, x.mem[off:])
		}
	} else {
		if _, err := x.f.Seek(off, io.SeekStart); err != nil {
			return lib.SQLITE_IOERR_READ
		}
		var err error
		if got, err = io.ReadFull(x.f, b); err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return lib.SQLITE_IOERR_READ
		}
	}
	if got < len(b) {
		clear(b[got:])
		return lib.SQLITE_IOERR_SHORT_READ
	}
	return lib.SQLITE_OK
}

func fileWrite(_ *libc.TLS, at, buf uintptr, n int32, off int64) int32 {
	x := fileOf(at)
	b := unsafe.Slice(mem[byte](buf), n)
	if x.f == nil {
		return x.writeMem(b, off)
	}
	if _, err := x.f.Seek(off, io.SeekStart); err != nil {
		return lib.SQLITE_IOERR_WRITE
	}
	if _, err := x.f.Write(b); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			return lib.SQLITE_FULL
		}
		return lib.SQLITE_IOERR_WRITE
	}
	return lib.SQLITE_OK
}

// writeMem writes to a temporary file.
func (x *file) writeMem(b []byte, off int64) int32 {
	end := off + int64(len(b))
	if end > 1<<32 {
		return lib.SQLITE_FULL
	}
	if end > int64(cap(x.mem)) {
		size := max(end, int64(cap(x.mem))*3/2)
		if x.d.c.Pay(size-int64(cap(x.mem))) != nil {
			return lib.SQLITE_FULL
		}
		x.mem = append(make([]byte, 0, size), x.mem...)
	}
	if end > int64(len(x.mem)) {
		x.mem = x.mem[:end]
	}
	copy(x.mem[off:], b)
	return lib.SQLITE_OK
}

func fileTruncate(_ *libc.TLS, at uintptr, size int64) int32 {
	x := fileOf(at)
	if x.f == nil {
		if size < int64(len(x.mem)) {
			clear(x.mem[size:])
			x.mem = x.mem[:size]
		}
		return lib.SQLITE_OK
	}
	if x.f.Truncate(size) != nil {
		return lib.SQLITE_IOERR_TRUNCATE
	}
	return lib.SQLITE_OK
}

func fileSync(*libc.TLS, uintptr, int32) int32 { return lib.SQLITE_OK }

func fileSize(_ *libc.TLS, at, out uintptr) int32 {
	x := fileOf(at)
	size := int64(len(x.mem))
	if x.f != nil {
		info, err := x.f.Stat()
		if err != nil {
			return lib.SQLITE_IOERR_FSTAT
		}
		size = info.Size
	}
	*mem[int64](out) = size
	return lib.SQLITE_OK
}

func fileControl(_ *libc.TLS, _ uintptr, _ int32, _ uintptr) int32 { return lib.SQLITE_NOTFOUND }

func fileSector(*libc.TLS, uintptr) int32 { return 4096 }

func fileTraits(*libc.TLS, uintptr) int32 { return lib.SQLITE_IOCAP_POWERSAFE_OVERWRITE }
