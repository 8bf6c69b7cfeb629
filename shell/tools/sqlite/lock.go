package sqlite

import (
	"sync"
	"time"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// Locks exist between processes of one machine, on one file. A table here replaces the byte ranges
// of a real file.

type lockKey struct {
	fs  *vfs.FS
	ino uint64
}

const shmSlots = 8

// lock is the state of one database file.
type lock struct {
	users     int
	shared    int
	reserved  *file
	pending   *file
	exclusive *file

	regions []uintptr // for the index of a write-ahead log
	readers [shmSlots]int
	writer  [shmSlots]*file
}

var locks = struct {
	mu sync.Mutex
	m  map[lockKey]*lock
}{m: map[lockKey]*lock{}}

func microseconds(n int32) time.Duration { return time.Duration(n) * time.Microsecond }

func (x *file) attach(k lockKey) {
	locks.mu.Lock()
	defer locks.mu.Unlock()
	l := locks.m[k]
	if l == nil {
		l = &lock{}
		locks.m[k] = l
	}
	l.users++
	x.lock, x.key = l, k
}

func (x *file) detach() {
	if x.lock == nil {
		return
	}
	locks.mu.Lock()
	defer locks.mu.Unlock()
	x.release(lib.SQLITE_LOCK_NONE)
	for i := range x.slots {
		x.releaseSlot(i)
	}
	if x.lock.users--; x.lock.users == 0 {
		for _, p := range x.lock.regions {
			libc.Xfree(x.d.tls, p)
		}
		delete(locks.m, x.key)
	}
	x.lock = nil
}

// release goes down to a level.
func (x *file) release(level int32) {
	l := x.lock
	if l.exclusive == x {
		l.exclusive = nil
	}
	if l.pending == x {
		l.pending = nil
	}
	if l.reserved == x {
		l.reserved = nil
	}
	if level == lib.SQLITE_LOCK_NONE && x.level >= lib.SQLITE_LOCK_SHARED {
		l.shared--
	}
	x.level = min(x.level, level)
}

func fileLock(_ *libc.TLS, at uintptr, level int32) int32 {
	x := fileOf(at)
	if x.level >= level {
		return lib.SQLITE_OK
	}
	if x.lock == nil {
		x.level = level
		return lib.SQLITE_OK
	}
	locks.mu.Lock()
	defer locks.mu.Unlock()
	l := x.lock
	switch {
	case level == lib.SQLITE_LOCK_SHARED:
		if l.pending != nil || l.exclusive != nil {
			return lib.SQLITE_BUSY
		}
		l.shared++
	case level == lib.SQLITE_LOCK_RESERVED:
		if l.reserved != nil && l.reserved != x {
			return lib.SQLITE_BUSY
		}
		l.reserved = x
	default:
		if l.pending != nil && l.pending != x || l.reserved != nil && l.reserved != x {
			return lib.SQLITE_BUSY
		}
		l.pending = x
		if l.shared > 1 {
			x.level = lib.SQLITE_LOCK_PENDING
			return lib.SQLITE_BUSY
		}
		l.exclusive = x
	}
	x.level = level
	return lib.SQLITE_OK
}

func fileUnlock(_ *libc.TLS, at uintptr, level int32) int32 {
	x := fileOf(at)
	if x.lock == nil {
		x.level = min(x.level, level)
		return lib.SQLITE_OK
	}
	locks.mu.Lock()
	defer locks.mu.Unlock()
	if x.level > level {
		x.release(level)
	}
	return lib.SQLITE_OK
}

func fileReserved(_ *libc.TLS, at, out uintptr) int32 {
	x := fileOf(at)
	*mem[int32](out) = 0
	if x.lock == nil {
		return lib.SQLITE_OK
	}
	locks.mu.Lock()
	defer locks.mu.Unlock()
	if l := x.lock; l.reserved != nil || l.pending != nil || l.exclusive != nil {
		*mem[int32](out) = 1
	}
	return lib.SQLITE_OK
}

const maxRegions = 4096

// shmMap returns memory that all connections to a database share.
func shmMap(tls *libc.TLS, at uintptr, i, size, extend int32, out uintptr) int32 {
	x := fileOf(at)
	*mem[uintptr](out) = 0
	if x.lock == nil || i >= maxRegions {
		return lib.SQLITE_IOERR_SHMMAP
	}
	locks.mu.Lock()
	defer locks.mu.Unlock()
	x.shm = true
	for extend != 0 && int(i) >= len(x.lock.regions) {
		p := libc.Xcalloc(tls, 1, libc.Tsize_t(size))
		if p == 0 {
			return lib.SQLITE_NOMEM
		}
		x.lock.regions = append(x.lock.regions, p)
	}
	if int(i) < len(x.lock.regions) {
		*mem[uintptr](out) = x.lock.regions[i]
	}
	return lib.SQLITE_OK
}

func (x *file) releaseSlot(i int) {
	switch x.slots[i] {
	case 1:
		x.lock.readers[i]--
	case 2:
		x.lock.writer[i] = nil
	}
	x.slots[i] = 0
}

func shmLock(_ *libc.TLS, at uintptr, from, n, flags int32) int32 {
	x := fileOf(at)
	if x.lock == nil || from < 0 || from+n > shmSlots {
		return lib.SQLITE_IOERR_SHMLOCK
	}
	locks.mu.Lock()
	defer locks.mu.Unlock()
	l := x.lock
	if flags&lib.SQLITE_SHM_UNLOCK != 0 {
		for i := from; i < from+n; i++ {
			x.releaseSlot(int(i))
		}
		return lib.SQLITE_OK
	}
	for i := from; i < from+n; i++ {
		others := l.readers[i]
		if x.slots[i] == 1 {
			others--
		}
		if l.writer[i] != nil && l.writer[i] != x || flags&lib.SQLITE_SHM_EXCLUSIVE != 0 && others > 0 {
			return lib.SQLITE_BUSY
		}
	}
	for i := from; i < from+n; i++ {
		x.releaseSlot(int(i))
		if flags&lib.SQLITE_SHM_EXCLUSIVE != 0 {
			x.slots[i], l.writer[i] = 2, x
		} else {
			x.slots[i] = 1
			l.readers[i]++
		}
	}
	return lib.SQLITE_OK
}

// shmBarrier orders memory between goroutines.
func shmBarrier(*libc.TLS, uintptr) {
	locks.mu.Lock()
	defer locks.mu.Unlock()
}

func shmUnmap(_ *libc.TLS, at uintptr, remove int32) int32 {
	x := fileOf(at)
	if x.lock == nil || !x.shm {
		return lib.SQLITE_OK
	}
	locks.mu.Lock()
	defer locks.mu.Unlock()
	x.shm = false
	if remove != 0 && x.lock.users == 1 {
		for _, p := range x.lock.regions {
			libc.Xfree(x.d.tls, p)
		}
		x.lock.regions = nil
	}
	return lib.SQLITE_OK
}
