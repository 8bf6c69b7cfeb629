package archive

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"testing"

	"github.com/ulikunitz/xz"

	"github.com/carrel-dev/carrel/shell/tool"
)

// xzOf compresses text in blocks of 1000 bytes.
func xzOf(t testing.TB, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := xz.WriterConfig{DictCap: 1 << 16, BlockSize: 1000}.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestXZWindows reads files with many blocks and streams. It checks that a large dictionary is
// refused in every block.
func TestXZWindows(t *testing.T) {
	text := bytes.Repeat([]byte("all that is gold does not glitter "), 300)
	one := xzOf(t, text)
	two := append(append(append([]byte{}, one...), 0, 0, 0, 0), one...)
	x := newBox(t)
	r, err := decoder(&tool.Call{Host: x, Ctx: t.Context(), Name: "xz"}, "xz", bytes.NewReader(two))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, append(append([]byte{}, text...), text...)) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	// The header of the last block gets a dictionary of 4 GB and a correct checksum.
	header := one[12 : 12+int(one[12])*4+4]
	at := bytes.LastIndex(one, header[:4])
	if at <= 12 {
		t.Fatal("there is one block only")
	}
	evil := append([]byte{}, two...)
	second := bytes.LastIndex(evil, header[:4])
	h := evil[second : second+len(header)]
	i := bytes.IndexByte(h, 0x21)
	h[i+2] = 40
	sum := crc32.ChecksumIEEE(h[:len(h)-4])
	h[len(h)-4], h[len(h)-3], h[len(h)-2], h[len(h)-1] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
	if r, err = decoder(&tool.Call{Host: x, Ctx: t.Context(), Name: "xz"}, "xz", bytes.NewReader(evil)); err == nil {
		_, err = io.ReadAll(r)
	}
	if !errors.Is(err, errWindow) {
		t.Errorf("a dictionary of 4 GB: %v", err)
	}
}
