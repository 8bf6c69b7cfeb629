package ns

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// Host ids of sandboxes. The ranges are far above the ids of people and services and the usual ids
// of containers, and do not overlap with gvisor's.
const (
	firstID  = 2_100_000_000
	rangeLen = 65536
	rangesOf = 30_000
)

// canMap returns the reason why this process can't give out ids and mount images, or nil.
func canMap() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("running as uid %d", os.Geteuid())
	}
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return err
	}
	if !hosted.MapsIDs(string(b), firstID, rangeLen*rangesOf) {
		return errors.New("this container's root has no ids to give out")
	}
	// Only a process that may mount a filesystem of a block device passes the first call.
	fd, err := unix.Fsopen("erofs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("mount EROFS: %w", err)
	}
	return os.NewSyscallError("close", unix.Close(fd))
}

// takeRange finds a range of host ids that no sandbox of this driver has. Another driver may use
// the same range. Between those two sandboxes the second wall is then missing, but not the first.
func (d *Driver) takeRange(id carrel.ID) (uint32, error) {
	sum := sha256.Sum256([]byte(d.mark + string(id)))
	n := binary.BigEndian.Uint32(sum[:4]) % rangesOf
	d.mu.Lock()
	defer d.mu.Unlock()
	for range rangesOf {
		first := firstID + n*rangeLen
		if !d.ranges[first] {
			d.ranges[first] = true
			return first, nil
		}
		n = (n + 1) % rangesOf
	}
	return 0, &carrel.Error{Kind: carrel.Exhausted, Err: errors.New("all ranges of host ids are in use")}
}

// dropRange gives a range back.
func (d *Driver) dropRange(first uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.ranges, first)
}

// idMap maps root inside to the caller, or maps a whole range.
func idMap(first uint32, own int) []syscall.SysProcIDMap {
	if first == 0 {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: own, Size: 1}}
	}
	return []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(first), Size: rangeLen}}
}

// userNamespace makes a user namespace with a range of ids, for idmapped mounts. Only a new process
// can make one. That process is stopped before its first instruction, and killed. The calling
// goroutine must be locked to its thread.
func userNamespace(first uint32) (*os.File, error) {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	var p *os.Process
	err := proc.Alone(func() (err error) {
		p, err = os.StartProcess(hosted.SelfName, []string{"carrel-ids"}, &os.ProcAttr{Env: []string{}, Sys: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: idMap(first, 0),
			GidMappings: idMap(first, 0),
			Ptrace:      true,
			Pdeathsig:   syscall.SIGKILL,
		}})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("new user namespace: %w", err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
	_ = p.Kill()
	_, _ = p.Wait()
	return f, err
}
