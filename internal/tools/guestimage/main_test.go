package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/erofs/go-erofs"
)

// program returns the header of a program with constants from 0x1000 to below 0x2000 and a writable
// segment at data.
func program(t *testing.T, data uint64) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, v := range []any{
		elf.Header64{Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Phoff: 64, Phentsize: 56, Phnum: 2},
		elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Off: 0, Vaddr: 0x1000, Filesz: 0xff0, Memsz: 0xff0},
		elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W), Off: 0x1000, Vaddr: data, Filesz: 0x10, Memsz: 0x1000},
	} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// TestApart refuses a guest whose segments touch: it would cost each sandbox 1.7 MB.
func TestApart(t *testing.T) {
	for _, c := range []struct {
		data  uint64
		apart bool
	}{{0x2000, false}, {0x2010, false}, {0x3000, true}} {
		name := filepath.Join(t.TempDir(), "guest")
		if err := os.WriteFile(name, program(t, c.data), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := apart(name); (err == nil) != c.apart {
			t.Errorf("data at %#x: %v", c.data, err)
		}
	}
}

// TestImage shows that the image holds the complete binaries, executable and owned by root. The
// image is the same each time, because its hash is its name on the host. Only sudo is set-uid.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	contents := map[string][]byte{ // not whole numbers of blocks
		"guest": append(program(t, 0x3000), bytes.Repeat([]byte("guest"), 3001)...),
		"sudo":  bytes.Repeat([]byte("sudo"), 2001),
	}
	var in []string
	for _, name := range []string{"guest", "sudo"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, contents[name], 0o600); err != nil {
			t.Fatal(err)
		}
		in = append(in, file)
	}
	var images [2][]byte
	for i := range images {
		out := filepath.Join(dir, "out.erofs")
		if err := run(out, in); err != nil {
			t.Fatal(err)
		}
		var err error
		if images[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(images[0], images[1]) {
		t.Error("two images of the same binaries differ")
	}
	fsys, err := erofs.Open(bytes.NewReader(images[0]))
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{"guest": 0o755, "sudo": 0o4755} {
		got, err := fs.ReadFile(fsys, name)
		if err != nil || !bytes.Equal(got, contents[name]) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		info, err := fs.Stat(fsys, name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&0o7777 != mode { // the reader returns the mode bits in Unix's form
			t.Errorf("%s: mode %o", name, uint32(info.Mode()))
		}
		if st, ok := info.Sys().(*erofs.Stat); !ok || st.UID != 0 || st.GID != 0 {
			t.Errorf("%s: %+v", name, info.Sys())
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if run(filepath.Join(dir, "x"), []string{in[0], filepath.Join(dir, "absent")}) == nil {
		t.Error("an absent binary is no error")
	}
	if run(filepath.Join(dir, "x"), in[:1]) == nil {
		t.Error("one binary is no error")
	}
}
