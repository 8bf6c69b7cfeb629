package tap_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/linux/tap"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// lent is a process in namespaces of its own. It lends a device to itself, and carries a frame each
// way.
func lent() {
	runtime.LockOSThread()
	if err := carry(os.Getenv(deviceVariable)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func carry(file string) error {
	const name = "card7"
	link, err := tap.Lend(name, 0, 1500, file)
	if err != nil {
		return err
	}
	defer link.Close()
	fd := int(link.Fd())
	if header, ok := tap.Packets(fd); !header || !ok {
		return fmt.Errorf("Packets gave %v, %v", header, ok)
	}
	if file == "" {
		file = "/dev/net/tun"
	}
	card, err := unix.Open(file, unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := errors.Join(unix.IoctlIfreq(card, unix.TUNSETIFF, req), unix.SetNonblock(fd, false)); err != nil {
		return fmt.Errorf("the program opens the device: %w", err)
	}
	frame := append(make([]byte, 10), bytes.Repeat([]byte{2}, 12)...) // no offload, addresses
	frame = append(append(frame, 0x88, 0xb5), bytes.Repeat([]byte("x"), 200)...)
	for what, ends := range map[string][2]int{"out": {card, fd}, "in": {fd, card}} {
		if _, err := unix.Write(ends[0], frame); err != nil {
			return fmt.Errorf("%s: write: %w", what, err)
		}
		got := make([]byte, 4096)
		n, err := unix.Read(ends[1], got)
		if err != nil || !bytes.Equal(got[:n], frame) {
			return fmt.Errorf("%s: read %x, %w", what, got[:n], err)
		}
	}
	return nil
}

// TestLend: frames of a program that opens the device by its name come out of the packet socket, and
// the other way.
func TestLend(t *testing.T) {
	cmd := part("lend")
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	if err := cmd.Start(); err != nil {
		testenv.Need(t, "ns", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, &said)
	}
	if _, err := tap.Lend("card7", 0, 1500, t.TempDir()); carrel.KindOf(err) != carrel.Unsupported || carrel.HintOf(err) == "" {
		t.Errorf("no device: %v", err)
	}
}
