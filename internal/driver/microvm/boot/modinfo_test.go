package boot

import (
	"slices"
	"testing"

	"github.com/carrel-dev/carrel/internal/driver/microvm/boot/boottest"
)

// TestParseModule reads a module that has all that counts, and files that are no modules.
func TestParseModule(t *testing.T) {
	data := boottest.Module("license=GPL", "depends=crc32,lib-x", "alias=fs-erofs", "alias=pci:v1*")
	m, err := ParseModule(data)
	if err != nil || !slices.Equal(m.Needs, []string{"crc32", "lib_x"}) || !slices.Equal(m.Aliases, []string{"fs-erofs", "pci:v1*"}) {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := ParseModule(boottest.Module("depends=")); err != nil || len(m.Needs) > 0 {
		t.Errorf("needs nothing: %+v, %v", m, err)
	}
	for cut := range len(data) {
		_, _ = ParseModule(data[:cut])
	}
	if _, err := ParseModule(data[:len(data)/2]); err == nil {
		t.Error("half a module is one")
	}
	if got := ModuleName("nf-x_y.ko"); got != "nf_x_y" {
		t.Error(got)
	}
}

// FuzzModule reads modules that are none.
func FuzzModule(f *testing.F) {
	f.Add([]byte("\x7fELF"))
	f.Add([]byte{})
	f.Add(boottest.Module("depends=a,b"))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = ParseModule(b) })
}
