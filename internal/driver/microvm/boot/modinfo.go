package boot

import (
	"bytes"
	"debug/elf"
	"errors"
	"strings"
)

// Wanted are the modules for a machine's devices and its filesystems, and the one by which the guest
// ends connections after a restore. A kernel may have some of them built in; then a directory of
// modules does not have them.
var Wanted = []string{"virtio_mmio", "virtio_blk", "virtio_net", "erofs", "overlay", "tcp_diag"}

// ModuleSuffix ends the name of a module's file.
const ModuleSuffix = ".ko"

// ModuleName is the name of a module's file, as dependencies name it.
func ModuleName(file string) string { return plain(strings.TrimSuffix(file, ModuleSuffix)) }

// ParseModule reads the modules that a module needs, and its aliases, out of its section .modinfo.
// The result has no name and no data.
func ParseModule(data []byte) (m Module, err error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return m, err
	}
	s := f.Section(".modinfo")
	if s == nil || s.Type == elf.SHT_NOBITS {
		return m, errors.New("no module: it has no section .modinfo")
	}
	info, err := s.Data()
	if err != nil {
		return m, err
	}
	for field := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(field, "depends="); ok && list != "" {
			m.Needs = strings.Split(plain(list), ",")
		}
		if alias, ok := strings.CutPrefix(field, "alias="); ok {
			m.Aliases = append(m.Aliases, alias)
		}
	}
	return m, nil
}
