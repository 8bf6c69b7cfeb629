package settings

import "syscall"

// mostMemory returns most of the machine's memory, in MiB.
func mostMemory() int {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	total := uint64(info.Totalram) * uint64(info.Unit) >> 20
	return int(max(total*8/10, 512))
}
