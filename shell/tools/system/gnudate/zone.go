// Package gnudate reads and writes dates as GNU date does. [Parse] knows the grammar of date -d
// (ISO and RFC dates, "next monday", "2 days ago", "@epoch", a TZ="…" before the date). [Format]
// knows the directives of date +FORMAT.
//
// Time zones come from a table in the program. So a hostile zone name can't open a file:
// LoadLocation of package time would first search the host's directories.
package gnudate

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/binary"
	"io"
	"strings"
	"sync"
	"time"
)

//go:generate go run gen.go

//go:embed zones.gz
var packed []byte

// zones maps names to data. The table is unpacked at its first use.
var zones = sync.OnceValue(func() map[string][]byte {
	out := map[string][]byte{}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return out
	}
	all, err := io.ReadAll(r)
	if err != nil {
		return out
	}
	for len(all) > 0 {
		at := bytes.IndexByte(all, 0)
		if at < 0 || len(all) < at+5 {
			break
		}
		n := int(binary.BigEndian.Uint32(all[at+1:]))
		out[string(all[:at])] = all[at+5 : at+5+n]
		all = all[at+5+n:]
	}
	return out
})

// Location returns the zone for a value of TZ: a name, or POSIX's notation
// (EST5EDT,M3.2.0,M11.1.0). Any other value is UTC, named after its first letters, as in the C
// library.
func Location(tz string) *time.Location {
	tz = strings.TrimPrefix(tz, ":")
	switch tz {
	case "", "UTC", "UTC0":
		return time.UTC
	}
	if data, ok := zones()[tz]; ok {
		if loc, err := time.LoadLocationFromTZData(tz, data); err == nil {
			return loc
		}
	}
	if name, offset, ok := posixZone(tz); ok {
		if loc, err := time.LoadLocationFromTZData(tz, zoneData(name, offset, tz)); err == nil {
			return loc
		}
		return time.FixedZone(name, offset)
	}
	n := 0
	for n < len(tz) && (tz[n]|0x20 >= 'a' && tz[n]|0x20 <= 'z') {
		n++
	}
	if n < 3 {
		return time.UTC
	}
	return time.FixedZone(tz[:n], 0)
}

// posixZone reads the first name and offset of POSIX's notation. There, offsets to the west are
// positive.
func posixZone(s string) (name string, offset int, ok bool) {
	if strings.HasPrefix(s, "<") {
		end := strings.IndexByte(s, '>')
		if end < 0 {
			return "", 0, false
		}
		name, s = s[1:end], s[end+1:]
	} else {
		n := 0
		for n < len(s) && (s[n]|0x20 >= 'a' && s[n]|0x20 <= 'z') {
			n++
		}
		name, s = s[:n], s[n:]
	}
	if len(name) < 3 || s == "" {
		return "", 0, false
	}
	sign := -1
	if s[0] == '-' {
		sign = 1
	}
	s = strings.TrimLeft(s, "+-")
	parts := [3]int{}
	i, any := 0, false
	for n := 0; n < len(s); n++ {
		switch {
		case s[n] >= '0' && s[n] <= '9':
			parts[i] = parts[i]*10 + int(s[n]-'0')
			any = true
		case s[n] == ':' && i < 2:
			i++
		default:
			n = len(s)
		}
	}
	if !any || parts[0] > 167 || parts[1] > 59 || parts[2] > 59 {
		return "", 0, false
	}
	return name, sign * (parts[0]*3600 + parts[1]*60 + parts[2]), true
}

// zoneData makes the data of a zone that has a rule and no transitions.
func zoneData(name string, offset int, rule string) []byte {
	var b bytes.Buffer
	head := func(types, chars uint32) {
		b.WriteString("TZif2" + strings.Repeat("\x00", 15))
		for _, n := range []uint32{0, 0, 0, 0, types, chars} {
			_ = binary.Write(&b, binary.BigEndian, n) // a buffer takes everything
		}
	}
	body := func() {
		_ = binary.Write(&b, binary.BigEndian, int32(offset))
		b.WriteString("\x00\x00" + name + "\x00")
	}
	chars := uint32(len(name) + 1)
	head(1, chars)
	body()
	head(1, chars)
	body()
	b.WriteString("\n" + rule + "\n")
	return b.Bytes()
}
