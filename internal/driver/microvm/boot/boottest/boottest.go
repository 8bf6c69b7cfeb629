// Package boottest makes files of kernels for tests: modules that no kernel would load, but whose
// descriptions can be read.
package boottest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
)

// Module returns a module whose section .modinfo has these fields, each as "key=value".
func Module(fields ...string) []byte {
	info := strings.Join(fields, "\x00") + "\x00"
	const names = "\x00.modinfo\x00.shstrtab\x00"
	var h elf.Header64
	head, entry := uint64(binary.Size(h)), binary.Size(elf.Section64{})
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	h.Type, h.Machine, h.Version = uint16(elf.ET_REL), uint16(elf.EM_X86_64), uint32(elf.EV_CURRENT)
	h.Ehsize, h.Shentsize, h.Shnum, h.Shstrndx = uint16(head), uint16(entry), 3, 2
	h.Shoff = head + uint64(len(info)+len(names))
	var out bytes.Buffer
	for _, part := range []any{h, []byte(info), []byte(names), []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: head, Size: uint64(len(info))},
		{Name: uint32(strings.Index(names, ".shstrtab")), Type: uint32(elf.SHT_STRTAB), Off: head + uint64(len(info)), Size: uint64(len(names))},
	}} {
		_ = binary.Write(&out, binary.LittleEndian, part) // a buffer takes all
	}
	return out.Bytes()
}
