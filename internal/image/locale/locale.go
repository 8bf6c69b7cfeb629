// Package locale writes the C library's archive of languages.
//
// A program that uses a language opens a dozen files for it at its start, and looks for twice as
// many: 80 of the 115 system calls of /bin/echo. If all languages are in one archive file, the C
// library opens only that. Debian's own language, C.UTF-8, is in a directory. So we put the content
// of such directories into an archive, as localedef(1) does with other languages. localedef can
// also add to our archive later.
package locale

import (
	"crypto/md5"
	"encoding/binary"
	"maps"
	"slices"
)

// Dir is the C library's directory of languages. It looks for Archive first.
const (
	Dir     = "usr/lib/locale"
	Archive = "locale-archive"
)

// MaxBytes bounds the archive. Up to that size the C library maps it as a whole.
const MaxBytes = 2 << 20

// Files are the files of one language, by the C library's numbers of categories. The missing
// number stands for all categories and has no file.
var Files = [...]string{"LC_CTYPE", "LC_NUMERIC", "LC_TIME", "LC_COLLATE", "LC_MONETARY",
	"LC_MESSAGES/SYS_LC_MESSAGES", "",
	"LC_PAPER", "LC_NAME", "LC_ADDRESS", "LC_TELEPHONE", "LC_MEASUREMENT", "LC_IDENTIFICATION"}

// Language holds the contents of a language's files, in the order of Files.
type Language [len(Files)][]byte

// whole reports whether no file of the language is missing.
func (l Language) whole() bool {
	for i, name := range Files {
		if name != "" && l[i] == nil {
			return false
		}
	}
	return true
}

// Pack writes the archive of languages, by name. It leaves out those that lack a file. It returns
// nil if none is left, or if the archive would be larger than MaxBytes.
func Pack(all map[string]Language) []byte {
	whole := maps.Clone(all)
	maps.DeleteFunc(whole, func(_ string, l Language) bool { return !l.whole() })
	if len(whole) == 0 {
		return nil
	}
	if out := pack(whole); len(out) <= MaxBytes {
		return out
	}
	return nil
}

// The parts of the archive, see locale/locarchive.h of the C library: a header, a table of names by
// their hash, the names, the places of each language's files, and a table of files by their sums.
// localedef uses the last table to find a file that the archive already has.
const (
	archiveMagic  = 0xde020109
	archiveHeader = 14 * 4
	nameEntry     = 3 * 4
	languageEntry = 4 + len(Files)*2*4
	sumEntry      = md5.Size + 4
	archiveAlign  = 16
)

// pack writes the archive of some languages. The tables have room for the same number again,
// and no more: each program reads them at its start.
func pack(all map[string]Language) []byte {
	room := 2*len(all) + 1
	names, sums := prime(2*room), prime(2*room*len(Files))
	nameAt := archiveHeader
	textAt := nameAt + names*nameEntry
	textSize, textUsed := 0, 0
	for name := range all {
		textSize += 2 * (len(name) + 1)
	}
	languageAt := align(textAt+textSize, 4)
	sumAt := languageAt + room*languageEntry
	dataAt := align(sumAt+sums*sumEntry, archiveAlign)
	out := make([]byte, dataAt)
	put := func(at int, values ...int) {
		for i, v := range values {
			binary.NativeEndian.PutUint32(out[at+4*i:], uint32(v))
		}
	}
	get := func(at int) uint32 { return binary.NativeEndian.Uint32(out[at:]) }
	known := map[[md5.Size]byte]int{}
	for i, name := range slices.Sorted(maps.Keys(all)) {
		text := textAt + textUsed
		textUsed += copy(out[text:], name) + 1
		record := languageAt + i*languageEntry
		hash := hashOf([]byte(name))
		n := freePlace(hash, names, func(n int) bool { return get(nameAt+n*nameEntry+4) == 0 })
		put(nameAt+n*nameEntry, int(hash), text, record)
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
				n := freePlace(hashOf(sum[:]), sums, func(n int) bool {
					return get(sumAt+n*sumEntry+md5.Size) == 0
				})
				copy(out[sumAt+n*sumEntry:], sum[:])
				put(sumAt+n*sumEntry+md5.Size, at)
			}
			put(record+4+category*8, at, len(data))
		}
	}
	put(0, archiveMagic, 0,
		nameAt, len(all), names,
		textAt, textUsed, textSize,
		languageAt, len(all), room,
		sumAt, len(known), sums)
	return out
}

// hashOf is the C library's hash of a name or a sum.
func hashOf(key []byte) uint32 {
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

// freePlace finds the first free place for a hash in a table, in the C library's way.
func freePlace(hash uint32, size int, free func(int) bool) int {
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
