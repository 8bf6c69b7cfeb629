//go:build linux

package microvm

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/klauspost/compress/zstd"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestLZ4 unpacks blocks that show each kind of sequence.
func TestLZ4(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"literals", "\x30abc", "abc"},
		{"a run", "\x1fa\x01\x00\x02\x00", "a" + strings.Repeat("a", 21)},
		{"a copy", "\x42abcd\x04\x00\x10z", "abcdabcdabz"},
		{"many literals", "\xf0\x05" + strings.Repeat("x", 20), strings.Repeat("x", 20)},
		{"before the start", "\x10a\x02\x00", ""},
		{"no distance", "\x10a\x00\x00", ""},
		{"literals are missing", "\x50abc", ""},
		{"the length goes on", "\xf0\xff\xff", ""},
		{"half a distance", "\x10a\x01", ""},
	} {
		got, err := appendLZ4(nil, []byte(c.in), 100)
		if (err != nil) != (c.want == "") || err == nil && string(got) != c.want {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
	bomb := append([]byte("\x1fa\x01\x00"), append(bytes.Repeat([]byte{255}, 1000), 0)...)
	if _, err := appendLZ4(nil, bomb, 1000); err == nil {
		t.Error("a block of 255,000 bytes fits into 1,000")
	}
}

// TestKernel unpacks the kernel that the machines boot, if it is here.
func TestKernel(t *testing.T) {
	dir := os.Getenv("CARREL_MICROVM")
	if dir == "" {
		testenv.Inapplicable(t, "make microvm has the kernel")
	}
	image, err := os.ReadFile(filepath.Join(dir, "vmlinuz"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := unpackKernel(image)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Progs) == 0 || f.Section(".text") == nil || f.Section(".notes") == nil {
		t.Errorf("%d bytes, %d segments: no kernel that starts by PVH", len(data), len(f.Progs))
	}
	for cut := range 40 { // wherever it ends too early, that is seen
		if _, err := unpackKernel(image[:len(image)*cut/40]); err == nil {
			t.Errorf("%d fortieths of an image are taken for a kernel", cut)
		}
	}
}

// TestUnpackZstd has a stream of zeros that unpacks to more than it may.
func TestUnpackZstd(t *testing.T) {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := w.EncodeAll(make([]byte, 1<<20), nil)
	if out, err := unpackZstd(packed, 1<<20); err != nil || len(out) != 1<<20 {
		t.Errorf("%d bytes, %v", len(out), err)
	}
	if out, err := unpackZstd(packed, 1<<20-1); err == nil {
		t.Errorf("%d bytes fit into one less", len(out))
	}
	if _, err := unpackZstd(packed[:len(packed)/2], 1<<20); err == nil {
		t.Error("half a stream is one")
	}
}

// FuzzKernel unpacks images that are none.
func FuzzKernel(f *testing.F) {
	image := make([]byte, 1024)
	copy(image[headerMagic:], "HdrS")
	binary.LittleEndian.PutUint32(image[payloadLength:], 64)
	binary.LittleEndian.PutUint32(image[512:], lz4Legacy)
	binary.LittleEndian.PutUint32(image[516:], 4)
	copy(image[520:], "\x30abc")
	f.Add(image)
	packed := bytes.Clone(image[:512])
	w, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	packed = w.EncodeAll(bytes.Repeat([]byte{0}, 1<<20), packed)
	binary.LittleEndian.PutUint32(packed[payloadLength:], uint32(len(packed)-512)+4)
	f.Add(append(packed, 0, 0, 16, 0))
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 2048))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = unpackKernel(b)
		_, _ = unpackLZ4(b, 1<<20)
		if out, err := unpackZstd(b, 1<<20); err == nil && len(out) > 1<<20 {
			t.Errorf("%d bytes, more than the bound", len(out))
		}
	})
}

// TestWords finds the reason of an end in a console's text.
func TestWords(t *testing.T) {
	stack := "\n" + strings.Repeat("[ 1.0]  ? function+0x1/0x2\n", 100)
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "\x00\x00", ""},
		{"the last lines", "one\ntwo\n\x00\x00", "one\ntwo"},
		{"a panic before a stack", "[ 1.0] Kernel panic - not syncing: why" + stack, "Kernel panic - not syncing: why"},
		{"the terminal's codes", "\x1b[2Jgone\x07\r\n", "[2Jgone"},
		{"no text", "\xff\xfe", "?"},
	} {
		if got := words([]byte(c.in)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// FuzzWords reads consoles of hostile machines.
func FuzzWords(f *testing.F) {
	f.Add([]byte("Kernel panic\x1b]0;title\x07"))
	f.Add(bytes.Repeat([]byte("\xe2\x80\xae"), 1000))
	f.Add(bytes.Repeat([]byte("x\n"), 4000))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := words(b)
		if len(got) > 2*hosted.MaxWords {
			t.Errorf("%d bytes", len(got))
		}
		for _, r := range got {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("%q has %U", got, r)
			}
		}
	})
}

// TestArchive reads an archive with cpio, another program.
func TestArchive(t *testing.T) {
	cpio, err := exec.LookPath("cpio")
	testenv.Need(t, "cpio", err)
	var a archive
	a.add("init", cpioFile, []byte("#!"))
	a.add("modules", cpioDir, nil)
	a.add("modules/00-a.ko", cpioFile, bytes.Repeat([]byte("x"), 4097))
	cmd := exec.Command(cpio, "--extract", "--make-directories", "--quiet", "--no-absolute-filenames")
	cmd.Dir, cmd.Stdin = t.TempDir(), bytes.NewReader(a.end())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := os.ReadFile(filepath.Join(cmd.Dir, "modules/00-a.ko"))
	if err != nil || len(got) != 4097 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if info, err := os.Stat(filepath.Join(cmd.Dir, "init")); err != nil || info.Mode().Perm() != 0o755 || info.Size() != 2 {
		t.Errorf("init is %+v, %v", info, err)
	}
}

// TestModulesInOrder loads a module after those that it needs, from a directory with small modules.
func TestModulesInOrder(t *testing.T) {
	dir := t.TempDir()
	for name, needs := range map[string]string{"virtio": "virtio_ring", "virtio_ring": "", "virtio_mmio": "virtio-ring,virtio", "erofs": "libcrc32c", "libcrc32c": "", "br_netfilter": "bridge", "bridge": ""} {
		if err := os.WriteFile(filepath.Join(dir, name+".ko"), tinyModule("alias=an-"+name+"\x00license=GPL\x00depends="+needs+"\x00"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first, more, err := readModules(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range first {
		names = append(names, m.Name)
	}
	if want := []string{"virtio_ring", "virtio", "virtio_mmio", "libcrc32c", "erofs"}; !slices.Equal(names, want) {
		t.Errorf("the order is %v, want %v", names, want)
	}
	if len(more) != 2 || more[0].Name != "br_netfilter" || !slices.Equal(more[0].Needs, []string{"bridge"}) ||
		!slices.Equal(more[1].Aliases, []string{"an-bridge"}) {
		t.Errorf("modules that the kernel may ask for: %+v", more)
	}
	if err := os.Remove(filepath.Join(dir, "virtio_ring.ko")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readModules(dir); err == nil {
		t.Error("a missing dependency is no error")
	}
}

// tinyModule is an ELF file with nothing but a section .modinfo.
func tinyModule(info string) []byte {
	names := "\x00.modinfo\x00.shstrtab\x00"
	infoAt := uint64(64)
	namesAt := infoAt + uint64(len(info))
	sectionsAt := (namesAt + uint64(len(names)) + 7) / 8 * 8
	var b bytes.Buffer
	put := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) }
	put(elf.Header64{Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64),
		Version: 1, Ehsize: 64, Shoff: sectionsAt, Shentsize: 64, Shnum: 3, Shstrndx: 2})
	b.WriteString(info + names)
	for uint64(b.Len()) < sectionsAt {
		b.WriteByte(0)
	}
	put(elf.Section64{})
	put(elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: infoAt, Size: uint64(len(info))})
	put(elf.Section64{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: namesAt, Size: uint64(len(names))})
	return b.Bytes()
}

// TestDevices shows that a machine has the devices that it needs, and no others.
func TestDevices(t *testing.T) {
	m := &machine{program: "/usr/bin/qemu-system-x86_64", accel: tcg, tscKHz: 2_400_000}
	args, err := m.args("mark/id", carrel.Limits{CPUs: 1, MemoryMB: 256}, boot.Order{Hostname: "id", MTU: 1500}, false)
	if err != nil {
		t.Fatal(err)
	}
	var devices []string
	for i, a := range args {
		if a == "-device" {
			kind, _, _ := strings.Cut(args[i+1], ",")
			devices = append(devices, kind)
		}
	}
	if want := []string{"virtio-blk-device", "virtio-blk-device", "virtio-blk-device", "virtio-net-device"}; !slices.Equal(devices, want) {
		t.Errorf("the devices are %v, want %v", devices, want)
	}
	for _, want := range []string{"-nodefaults", "-no-user-config", "-no-reboot", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"} {
		if !slices.Contains(args, want) {
			t.Errorf("no %s in %v", want, args)
		}
	}
	if text := strings.Join(args, " "); strings.Contains(text, "-qmp") || strings.Contains(text, "-monitor") || !strings.Contains(text, "tsc_early_khz=2400000") {
		t.Errorf("the command line is %s", text)
	}
	if _, err := m.args("mark", carrel.Limits{CPUs: 1, MemoryMB: 256}, boot.Order{Env: []string{strings.Repeat("x", 2000)}}, false); err == nil {
		t.Error("an order that the kernel would cut is no error")
	}
}
