package archive

import (
	"bytes"
	"testing"
)

// FuzzCpio unpacks and lists any bytes as a cpio archive.
func FuzzCpio(f *testing.F) {
	f.Add([]byte("0707010000000100008180000000000000000000000001000000000000000300000000000000000000000000000000000000020000000" + "0a\x00abc\x00"))
	f.Add([]byte("070707000000000001100644000000000000000001000000000000000000000000200000000003a\x00abc"))
	f.Add(append([]byte{0xc7, 0x71}, make([]byte, 30)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		x := newBox(t)
		x.run(t, cpioMain, data, "-tv")
		x.run(t, cpioMain, data, "-idmu")
		for _, name := range []string{"/a", "/up"} {
			if _, err := x.v.Lstat(name); err == nil {
				t.Errorf("%s was made", name)
			}
		}
	})
}

// FuzzAr reads any bytes as an ar archive.
func FuzzAr(f *testing.F) {
	member := "a/              0           0     0     644     3         `\nabc\n"
	f.Add([]byte(arMagic + member))
	f.Add([]byte(arMagic + "//                                              8         `\nlonger/\n/0              0           0     0     644     0         `\n"))
	f.Add([]byte(arMagic + "#1/4            0           0     0     644     5         `\nnamex\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		members, err := parseAr(data, func(int) bool { return true })
		if err != nil {
			return
		}
		for _, m := range members {
			if len(m.data) > 0 && !bytes.Contains(data, m.data) {
				t.Errorf("%q has what the archive has not", m.name)
			}
		}
	})
}
