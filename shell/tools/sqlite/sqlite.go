// Package sqlite has sqlite3, on the machine's disk.
//
// The library is modernc.org/sqlite/lib: SQLite's C code, translated to Go. Each run registers its
// own VFS on the machine's filesystem, and opens every connection with it. A script can't name
// another VFS, because URIs are off, and can't load extensions. So no file of the host is ever
// opened. Databases have SQLite's own transactions, journals and locks. Data that doesn't fit into
// the page cache goes to temporary files in memory, which the process pays for.
//
// # Threats
//
// The translated C code accesses memory by address. If a hostile database exploits a bug of SQLite,
// it does so in the process that serves the sandbox. Therefore connections are opened in defensive
// mode, and values are limited in size.
package sqlite

import (
	"fmt"
	"strings"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"

	"github.com/carrel-dev/carrel/shell/tool"
)

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	return map[string]tool.Command{"sqlite3": runSqlite, "sqlite": runSqlite}
}

const (
	maxValue = 32 << 20 // bytes of one string or blob
	opsBatch = 1000     // instructions between two payments
	overhead = 4 << 20  // page cache and other memory of one connection, in bytes
)

// db is a connection.
type db struct {
	tls  *libc.TLS
	ptr  uintptr
	disk *disk
	name string
}

// sqlError is an error of SQLite.
type sqlError struct {
	code   int // extended
	text   string
	offset int // in the statement, -1: none
	step   bool
}

// Error implements error.
func (e *sqlError) Error() string { return e.text }

// open opens a database on the disk. "" is a temporary one.
func (d *disk) open(name string, readOnly bool) (*db, error) {
	prepareLibrary()
	if err := d.c.Pay(overhead); err != nil {
		return nil, err
	}
	tls := d.tls
	path, vfs := cstring(tls, name), cstring(tls, d.name)
	defer libc.Xfree(tls, path)
	defer libc.Xfree(tls, vfs)
	flags := int32(lib.SQLITE_OPEN_READWRITE | lib.SQLITE_OPEN_CREATE)
	if readOnly {
		flags = lib.SQLITE_OPEN_READONLY
	}
	out := tls.Alloc(8)
	defer tls.Free(8)
	rc := lib.Xsqlite3_open_v2(tls, path, out, flags, vfs)
	x := &db{tls: tls, ptr: *mem[uintptr](out), disk: d, name: name}
	if rc != lib.SQLITE_OK {
		err := x.err(-1)
		x.close()
		return nil, err
	}
	lib.Xsqlite3_limit(tls, x.ptr, lib.SQLITE_LIMIT_LENGTH, maxValue)
	lib.Xsqlite3_limit(tls, x.ptr, lib.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 2000)
	lib.Xsqlite3_limit(tls, x.ptr, lib.SQLITE_LIMIT_EXPR_DEPTH, 500)
	lib.Xsqlite3_limit(tls, x.ptr, lib.SQLITE_LIMIT_COMPOUND_SELECT, 500)
	lib.Xsqlite3_limit(tls, x.ptr, lib.SQLITE_LIMIT_WORKER_THREADS, 0)
	lib.Xsqlite3_progress_handler(tls, x.ptr, opsBatch, pointer(progress), d.id)
	lib.Xsqlite3_set_authorizer(tls, x.ptr, pointer(authorize), d.id)
	x.ownRandom()
	va := libc.NewVaList(int32(1), uintptr(0))
	lib.Xsqlite3_db_config(tls, x.ptr, lib.SQLITE_DBCONFIG_DEFENSIVE, va)
	libc.Xfree(tls, va)
	return x, nil
}

func (x *db) close() {
	if x.ptr != 0 {
		lib.Xsqlite3_close_v2(x.tls, x.ptr)
		x.ptr = 0
		_ = x.disk.c.Pay(-overhead)
	}
}

// err returns the connection's last error.
func (x *db) err(base int) error {
	e := &sqlError{code: int(lib.Xsqlite3_extended_errcode(x.tls, x.ptr)), text: libc.GoString(lib.Xsqlite3_errmsg(x.tls, x.ptr)), offset: -1}
	if n := lib.Xsqlite3_error_offset(x.tls, x.ptr); n >= 0 && base >= 0 {
		e.offset = base + int(n)
	}
	return e
}

func cstring(tls *libc.TLS, s string) uintptr {
	p := libc.Xmalloc(tls, libc.Tsize_t(len(s)+1))
	if p == 0 {
		return 0
	}
	b := unsafe.Slice(mem[byte](p), len(s)+1)
	copy(b, s)
	b[len(s)] = 0
	return p
}

// progress pays for a statement's work, and ends the statement when it can't pay.
func progress(_ *libc.TLS, id uintptr) int32 {
	d := diskOf(id)
	if d == nil || d.c.Ctx.Err() != nil || !d.c.Step(opsBatch) {
		return 1
	}
	return 0
}

// private are pragmas that affect the whole process or would remove a limit.
const private = " hard_heap_limit soft_heap_limit temp_store temp_store_directory data_store_directory max_page_count cache_size " +
	"default_cache_size mmap_size threads trusted_schema cache_spill "

// authorize is called for every action of a statement.
func authorize(_ *libc.TLS, _ uintptr, action int32, a, b, _, _ uintptr) int32 {
	switch action {
	case lib.SQLITE_PRAGMA:
		name := strings.ToLower(libc.GoString(a))
		if b != 0 && strings.Contains(private, " "+name+" ") {
			return lib.SQLITE_IGNORE
		}
	case lib.SQLITE_ATTACH:
		if a != 0 && libc.GoString(a) == ":memory:" {
			return lib.SQLITE_DENY // its memory would not be paid for; '' does the same and pays
		}
	case lib.SQLITE_FUNCTION:
		if b != 0 && libc.GoString(b) == "load_extension" {
			return lib.SQLITE_DENY
		}
	}
	return lib.SQLITE_OK
}

// value is one column of a row.
type value struct {
	kind int32 // SQLITE_INTEGER, …
	text string
}

// rows is a running statement.
type rows struct {
	x     *db
	stmt  uintptr
	names []string
	base  int
}

// prepare compiles the first statement of a text. rest is the text after it. r is nil when the text
// has only space.
func (x *db) prepare(sql string, base int) (r *rows, rest string, err error) {
	if i := strings.IndexByte(sql, 0); i >= 0 {
		sql = sql[:i]
	}
	text := cstring(x.tls, sql)
	defer libc.Xfree(x.tls, text)
	out := x.tls.Alloc(16)
	defer x.tls.Free(16)
	rc := lib.Xsqlite3_prepare_v2(x.tls, x.ptr, text, -1, out, out+8)
	if rc != lib.SQLITE_OK {
		return nil, "", x.err(base)
	}
	stmt, tail := *mem[uintptr](out), *mem[uintptr](out + 8)
	rest = sql[min(int(tail-text), len(sql)):]
	if stmt == 0 {
		return nil, rest, nil
	}
	r = &rows{x: x, stmt: stmt, base: base}
	for i := range lib.Xsqlite3_column_count(x.tls, stmt) {
		r.names = append(r.names, libc.GoString(lib.Xsqlite3_column_name(x.tls, stmt, i)))
	}
	return r, rest, nil
}

// next goes to the next row.
func (r *rows) next() (bool, error) {
	switch lib.Xsqlite3_step(r.x.tls, r.stmt) {
	case lib.SQLITE_ROW:
		return true, nil
	case lib.SQLITE_DONE:
		return false, nil
	}
	err := r.x.err(-1).(*sqlError)
	err.step = true
	return false, err
}

func (r *rows) close() { lib.Xsqlite3_finalize(r.x.tls, r.stmt) }

// column returns a value of the row.
func (r *rows) column(i int) value {
	kind := lib.Xsqlite3_column_type(r.x.tls, r.stmt, int32(i))
	if kind == lib.SQLITE_NULL {
		return value{kind: kind}
	}
	p := lib.Xsqlite3_column_blob(r.x.tls, r.stmt, int32(i))
	if kind != lib.SQLITE_BLOB {
		p = lib.Xsqlite3_column_text(r.x.tls, r.stmt, int32(i))
	}
	n := lib.Xsqlite3_column_bytes(r.x.tls, r.stmt, int32(i))
	if p == 0 || n <= 0 {
		return value{kind: kind}
	}
	return value{kind, string(unsafe.Slice(mem[byte](p), n))}
}

// each calls fn with the rows of one of this package's own queries.
func (x *db) each(fn func(row []value) error, format string, args ...any) error {
	r, _, err := x.prepare(fmt.Sprintf(format, args...), -1)
	if err != nil || r == nil {
		return err
	}
	defer r.close()
	for {
		more, err := r.next()
		if err != nil || !more {
			return err
		}
		row := make([]value, len(r.names))
		for i := range row {
			row[i] = r.column(i)
		}
		if err := fn(row); err != nil {
			return err
		}
	}
}

// run executes one of this package's own statements.
func (x *db) run(sql string) error {
	for strings.TrimSpace(sql) != "" {
		r, rest, err := x.prepare(sql, -1)
		if err != nil {
			return err
		}
		if sql = rest; r == nil {
			continue
		}
		for more := true; more && err == nil; {
			more, err = r.next()
		}
		r.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// copyTo copies a database into dst, page by page.
func (x *db) copyTo(dst *db, from, to string) error {
	a, b := cstring(x.tls, from), cstring(x.tls, to)
	defer libc.Xfree(x.tls, a)
	defer libc.Xfree(x.tls, b)
	backup := lib.Xsqlite3_backup_init(x.tls, dst.ptr, b, x.ptr, a)
	if backup == 0 {
		return dst.err(-1)
	}
	for {
		rc := lib.Xsqlite3_backup_step(x.tls, backup, 100)
		if rc != lib.SQLITE_OK || !x.disk.c.Step(1000) {
			break
		}
	}
	if rc := lib.Xsqlite3_backup_finish(x.tls, backup); rc != lib.SQLITE_OK {
		return dst.err(-1)
	}
	return nil
}

func quoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func quoteName(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
