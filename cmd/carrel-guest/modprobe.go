//go:build linux

package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
)

// asksForModule reports whether a virtual machine's kernel started this program to load a module:
// it gives the arguments of modprobe.
func asksForModule(args []string) bool { return len(args) == 4 && args[1] == "-q" && args[2] == "--" }

// modprobe loads the module of this name or alias out of the machine's store.
func modprobe(name string) error {
	f, err := os.Open(boot.StorePath)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return boot.Load(f, info.Size(), name, func(_ string, data []byte) error {
		if err := unix.InitModule(data, ""); !errors.Is(err, unix.EEXIST) {
			return err
		}
		return nil
	})
}
