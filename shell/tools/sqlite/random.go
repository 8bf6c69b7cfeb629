package sqlite

import (
	"encoding/binary"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// SQLite has one generator of random numbers for the whole process. A machine's numbers must come
// from the machine, because a seed may determine them.

// ownRandom replaces random and randomblob.
func (x *db) ownRandom() {
	for name, f := range map[string]struct {
		args int32
		run  uintptr
	}{"random": {0, pointer(randomInt)}, "randomblob": {1, pointer(randomBlob)}} {
		p := cstring(x.tls, name)
		lib.Xsqlite3_create_function_v2(x.tls, x.ptr, p, f.args, lib.SQLITE_UTF8|lib.SQLITE_INNOCUOUS, x.disk.id, f.run, 0, 0, 0)
		libc.Xfree(x.tls, p)
	}
}

func randomInt(tls *libc.TLS, ctx uintptr, _ int32, _ uintptr) {
	var b [8]byte
	if d := diskOf(lib.Xsqlite3_user_data(tls, ctx)); d != nil {
		d.c.Random(b[:])
	}
	lib.Xsqlite3_result_int64(tls, ctx, int64(binary.LittleEndian.Uint64(b[:])))
}

func randomBlob(tls *libc.TLS, ctx uintptr, _ int32, args uintptr) {
	n := max(lib.Xsqlite3_value_int64(tls, *mem[uintptr](args)), 1)
	d := diskOf(lib.Xsqlite3_user_data(tls, ctx))
	if n > maxValue || d == nil {
		lib.Xsqlite3_result_error_toobig(tls, ctx)
		return
	}
	b := make([]byte, n)
	d.c.Random(b)
	p := libc.Xmalloc(tls, libc.Tsize_t(n))
	if p == 0 {
		lib.Xsqlite3_result_error_toobig(tls, ctx)
		return
	}
	copy(unsafe.Slice(mem[byte](p), n), b)
	lib.Xsqlite3_result_blob(tls, ctx, p, int32(n), lib.SQLITE_TRANSIENT)
	libc.Xfree(tls, p)
}
