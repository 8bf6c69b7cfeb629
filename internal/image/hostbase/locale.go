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

// A program that uses a language opens a dozen files for it at its start, and looks for twice as
// many: 80 of the 115 system calls of /bin/echo. If all languages are in one archive file, the C
// library opens only that. Debian's own language, C.UTF-8, is in a directory. So we put the content
// of such directories into an archive, as localedef(1) does with other languages. localedef can
// also add to our archive later.

// localeDir is the C library's directory of languages. It looks for localeArchive first.
const (
	localeDir     = "/usr/lib/locale"
	localeArchive = "locale-archive"
)

// localeMost bounds the archive. Up to that size the C library maps it as a whole.
const localeMost = 2 << 20

// localeFiles are the files of one language, by the C library's numbers of categories. The missing
// number stands for all categories and has no file.
var localeFiles = [...]string{"LC_CTYPE", "LC_NUMERIC", "LC_TIME", "LC_COLLATE", "LC_MONETARY", "LC_MESSAGES/SYS_LC_MESSAGES", "",
	"LC_PAPER", "LC_NAME", "LC_ADDRESS", "LC_TELEPHONE", "LC_MEASUREMENT", "LC_IDENTIFICATION"}

// locales writes the archive of the languages in directories, if there is no archive yet.
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

// locale holds the contents of a language's files.
type locale [len(localeFiles)][]byte

// locale reads the files of a language. It returns nil if one is missing.
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

// The parts of the archive, see locale/locarchive.h of the C library: a header, a table of names by
// their hash, the names, the places of each language's files, and a table of files by their sums.
// localedef uses the last table to find a file that the archive already has.
const (
	archiveMagic  = 0xde020109
	archiveHeader = 14 * 4
	nameEntry     = 3 * 4
	localeEntry   = 4 + len(localeFiles)*2*4
	sumEntry      = md5.Size + 4
	archiveAlign  = 16
)

// packLocales writes the archive of some languages. The tables have room for the same number again,
// and no more: each program reads them at its start.
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

// place finds the first free place for a hash in a table, in the C library's way.
func place(hash uint32, size int, free func(int) bool) int {
	n, step := int(hash%uint32(size)), 1+int(hash%uint32(size-2))
	for !free(n) {
		n = (n + step) % size
	}
	return n
}

// prime returns the next prime number. In a table of prime size, every step width reaches all
// places.
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
