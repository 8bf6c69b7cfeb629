package debian

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
)

// Java's store of trusted certificates (format "JKS", version 2) holds the time at which each
// certificate was added, and a checksum of everything. The checksum's key is this public password,
// the same on every machine. Java's own keytool reads the result in TestBuiltInTemplates.
const (
	keystoreName     = "etc/ssl/certs/java/cacerts"
	keystorePassword = "changeit"
	keystoreSalt     = "Mighty Aphrodite" // fixed by the format
	keystoreHead     = "\xfe\xed\xfe\xed\x00\x00\x00\x02"
	trustedCert      = 2 // the tag of such an entry
	maxKeystore      = 8 << 20
)

// fixedKeystore returns a Java key store with the same certificates, in the order of their names,
// all added at one time. It returns raw if that is no store of certificates only.
func fixedKeystore(raw []byte, at time.Time) []byte {
	rest, ok := bytes.CutPrefix(raw, []byte(keystoreHead))
	if !ok || len(rest) < 4+sha1.Size {
		return raw
	}
	count := binary.BigEndian.Uint32(rest)
	rest = rest[4 : len(rest)-sha1.Size]
	var entries []string
	for len(rest) > 0 {
		size, date := keystoreEntry(rest)
		if size == 0 {
			return raw
		}
		binary.BigEndian.PutUint64(rest[date:], uint64(at.UnixMilli()))
		entries = append(entries, string(rest[:size]))
		rest = rest[size:]
	}
	if uint32(len(entries)) != count {
		return raw
	}
	slices.SortFunc(entries, func(a, b string) int {
		return strings.Compare(keystoreAlias(a),
			keystoreAlias(b))
	})
	out := binary.BigEndian.AppendUint32([]byte(keystoreHead), count)
	out = append(out, strings.Join(entries, "")...)
	sum := sha1.New()
	for _, unit := range utf16.Encode([]rune(keystorePassword)) {
		sum.Write([]byte{byte(unit >> 8), byte(unit)})
	}
	sum.Write([]byte(keystoreSalt))
	sum.Write(out)
	return sum.Sum(out)
}

// keystoreEntry measures the entry at the beginning of b: its size and where its time is. An entry
// is a tag, a name, a time, the certificate's kind and the certificate. size is 0 for anything
// else.
func keystoreEntry(b []byte) (size, date int) {
	if len(b) < 6 || binary.BigEndian.Uint32(b) != trustedCert {
		return 0, 0
	}
	date = 6 + int(binary.BigEndian.Uint16(b[4:]))
	kind := date + 8
	if len(b) < kind+2 {
		return 0, 0
	}
	cert := kind + 2 + int(binary.BigEndian.Uint16(b[kind:]))
	if len(b) < cert+4 {
		return 0, 0
	}
	length := binary.BigEndian.Uint32(b[cert:])
	if uint64(length) > uint64(len(b)-cert-4) {
		return 0, 0
	}
	return cert + 4 + int(length), date
}

// keystoreAlias is the name of an entry that keystoreEntry has measured.
func keystoreAlias(entry string) string {
	length := int(entry[4])<<8 | int(entry[5])
	return entry[6 : 6+length]
}
