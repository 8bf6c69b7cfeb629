package ns

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// diskFile is the file in Spec.Dir that holds the sandbox's writes. diskDir is a directory that
// replaces it on hosts without loop devices.
const (
	diskFile = "disk"
	diskDir  = "layer"
)

// canBound returns the reason why this host has no disks of a limited size, or nil.
func canBound() error {
	fd, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/dev/loop-control", Err: err}
	}
	unix.Close(fd)
	if fd, err = unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC); err != nil {
		return fmt.Errorf("mount ext4: %w", err)
	}
	unix.Close(fd)
	return nil
}

// mountDisk mounts the place for the sandbox's writes: the filesystem in a file, which ends with
// its mount, or a directory.
func mountDisk(disk *os.File, dir, node string) error {
	st, err := disk.Stat()
	if err != nil {
		return err
	}
	if st.IsDir() {
		m, err := unix.OpenTree(int(disk.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
		if err != nil {
			return fmt.Errorf("open_tree %s: %w", disk.Name(), err)
		}
		return place(m, dir)
	}
	loop, err := attachLoop(disk, false, node)
	if err != nil {
		return err
	}
	defer loop.Close() // the mount keeps it
	m, err := newMount("ext4", unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOATIME, setting{"source", node}, setting{"discard", ""}, setting{"nobarrier", ""})
	if err != nil {
		return err
	}
	return place(m, dir)
}

// loopTries bounds the retries when others take a free device first.
const loopTries = 64

// attachLoop attaches a file to a loop device, makes the device's node and returns the open device.
// The device frees itself when its last user closes it.
func attachLoop(f *os.File, readOnly bool, node string) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(f.Fd()), Size: 4096}
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO
	mode := os.O_RDWR
	if readOnly {
		config.Info.Flags, mode = unix.LO_FLAGS_AUTOCLEAR|unix.LO_FLAGS_READ_ONLY, os.O_RDONLY
		config.Size = 0
	}
	for range loopTries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, os.NewSyscallError("ioctl LOOP_CTL_GET_FREE", err)
		}
		_ = os.Remove(node)
		if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, uint32(n)))); err != nil {
			return nil, &os.PathError{Op: "mknod", Path: node, Err: err}
		}
		loop, err := os.OpenFile(node, mode, 0)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		if err == nil {
			return loop, nil
		}
		loop.Close()
		if !errors.Is(err, unix.EBUSY) { // another was faster
			return nil, os.NewSyscallError("ioctl LOOP_CONFIGURE loop"+strconv.Itoa(n), err)
		}
	}
	return nil, errors.New("no loop device is free")
}

// loopMajor is the major number of loop devices, see Documentation/admin-guide/devices.txt.
const loopMajor = 7
