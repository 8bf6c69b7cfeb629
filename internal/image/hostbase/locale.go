package hostbase

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/carrel-dev/carrel/internal/image/erofs"
)

// A program that speaks a language opens a dozen files for it when it starts, and looks for twice as many:
// eighty system calls of the 115 that /bin/echo makes. Where all languages lie in one file, the C library opens that
// and nothing else. Debian's own language, C.UTF-8, lies in a directory; so we put what is in
// such directories into an archive, as localedef(1) does with others. It also finds what it
// adds later there.

// localeDir is where the C library looks for languages, and localeArchive what it looks for first.
const (
	localeDir     = "/usr/lib/locale"
	localeArchive = "locale-archive"
)

// localeMost bounds the archive: up to that size the C library maps it as a whole.
const localeMost = 2 << 20

// localeFiles are the files of one language, by the C library's numbers of categories. The one
// that is missing stands for all of them and has no file.
var localeFiles = [...]string{"LC_CTYPE", "LC_NUMERIC", "LC_TIME", "LC_COLLATE", "LC_MONETARY", "LC_MESSAGES/SYS_LC_MESSAGES", "",
	"LC_PAPER", "LC_NAME", "LC_ADDRESS", "LC_TELEPHONE", "LC_MEASUREMENT", "LC_IDENTIFICATION"}

// locales writes the archive of the languages that lie in directories, if there is none.
func (b *builder) locales() error {
	dir := b.root.Lookup(localeDir)
	if dir == nil || !dir.IsDir() || dir.Child(localeArchive) != nil {
		return nil
	}
	found := map[string]locale{}
	for _, name := range dir.Names() {
		l, err := b.locale(dir.Child(name))
		if err != nil {
			return err
		}
		if l != nil {
			found[name] = *l
		}
	}
	archive := packLocales(found)
	if len(found) == 0 || len(archive) > localeMost {
		return nil
	}
	_, err := b.w.AddFile(dir, localeArchive, 0o644, archive)
	return err
}

// locale is what the files of a language hold.
type locale [len(localeFiles)][]byte

// locale reads the files of a language; nil if it is not whole.
func (b *builder) locale(dir *erofs.Node) (*locale, error) {
	if dir == nil || !dir.IsDir() {
		return nil, nil
	}
	var l locale
	size := int64(0)
	for i, name := range localeFiles {
		if name == "" {
			continue
		}
		n := dir.Lookup(name)
		if n == nil || !n.Mode.IsRegular() {
			return nil, nil
		}
		if size += n.Data.Size; size > localeMost {
			return nil, nil
		}
		r, err := b.w.Reader(n.Data)
		if err != nil {
			return nil, err
		}
		if l[i], err = io.ReadAll(r); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
	}
	return &l, nil
}

// The archive's parts, see locale/locarchive.h of the C library: a header, a table of names by their
// hash, the names, for each language where its files are, and a table of files by their sums,
// by which localedef finds out that it has one already.
const (
	archiveMagic  = 0xde020109
	archiveHeader = 14 * 4
	nameEntry     = 3 * 4
	localeEntry   = 4 + len(localeFiles)*2*4
	sumEntry      = md5.Size + 4
	archiveAlign  = 16
)

// packLocales writes the archive of some languages. The tables have room for as many again, and not
// for more: they are read in at the start of each program.
func packLocales(all map[string]locale) []byte {
	room := 2*len(all) + 1
	names, sums := prime(2*room), prime(2*room*len(localeFiles))
	nameAt := archiveHeader
	textAt := nameAt + names*nameEntry
	textSize, textUsed := 0, 0
	for name := range all {
		textSize += 2 * (len(name) + 1)
	}
	localeAt := align(textAt+textSize, 4)
	sumAt := localeAt + room*localeEntry
	dataAt := align(sumAt+sums*sumEntry, archiveAlign)
	out := make([]byte, dataAt)
	put := func(at int, values ...int) {
		for i, v := range values {
			binary.NativeEndian.PutUint32(out[at+4*i:], uint32(v))
		}
	}
	known := map[[md5.Size]byte]int{}
	for i, name := range slices.Sorted(maps.Keys(all)) {
		text := textAt + textUsed
		textUsed += copy(out[text:], name) + 1
		record := localeAt + i*localeEntry
		hash := localeHash([]byte(name))
		put(nameAt+place(hash, names, func(n int) bool { return binary.NativeEndian.Uint32(out[nameAt+n*nameEntry+4:]) == 0 })*nameEntry,
			int(hash), text, record)
		put(record, 1) // one name for it
		for category, data := range all[name] {
			if data == nil {
				continue
			}
			sum := md5.Sum(data)
			at, ok := known[sum]
			if !ok {
				at = align(len(out), archiveAlign)
				out = append(append(out, make([]byte, at-len(out))...), data...)
				known[sum] = at
				n := place(localeHash(sum[:]), sums, func(n int) bool { return binary.NativeEndian.Uint32(out[sumAt+n*sumEntry+md5.Size:]) == 0 })
				copy(out[sumAt+n*sumEntry:], sum[:])
				put(sumAt+n*sumEntry+md5.Size, at)
			}
			put(record+4+category*8, at, len(data))
		}
	}
	put(0, archiveMagic, 0,
		nameAt, len(all), names,
		textAt, textUsed, textSize,
		localeAt, len(all), room,
		sumAt, len(known), sums)
	return out
}

// localeHash is the C library's hash of a name or a sum.
func localeHash(key []byte) uint32 {
	h := uint32(len(key))
	for _, c := range key {
		h = h<<9 | h>>23
		h += uint32(c)
	}
	if h == 0 {
		h = ^h
	}
	return h
}

// place finds the first free place for a hash in a table, as the C library does.
func place(hash uint32, size int, free func(int) bool) int {
	n, step := int(hash%uint32(size)), 1+int(hash%uint32(size-2))
	for !free(n) {
		n = (n + step) % size
	}
	return n
}

// prime is the next prime number: each step through a table of that size reaches all of it.
func prime(n int) int {
	for n |= 1; ; n += 2 {
		d := 3
		for d*d <= n && n%d != 0 {
			d += 2
		}
		if d*d > n {
			return n
		}
	}
}

func align(n, to int) int { return (n + to - 1) / to * to }
