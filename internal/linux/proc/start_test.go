//go:build linux

package proc

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain plays the process that reports its inherited descriptors.
func TestMain(m *testing.M) {
	if os.Getenv("CARREL_TEST_INHERITED") != "" {
		for fd := 3; fd < 1024; fd++ {
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
				name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
				fmt.Println(fd, name)
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestNothingIsInheritedByAccident starts many processes at once in user namespaces. Each must have
// its standard streams open and no file of the others.
func TestNothingIsInheritedByAccident(t *testing.T) {
	inherited := map[string]bool{} // what this process inherited from its parent
	for fd := 3; fd < 1024; fd++ {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			inherited[fmt.Sprint(fd)] = true
		}
	}
	var all sync.WaitGroup
	for range 60 {
		all.Go(func() {
			var out bytes.Buffer
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = []string{"CARREL_TEST_INHERITED=1"}
			cmd.Stdout, cmd.Stderr = &out, &out
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
			}
			if err := Alone(cmd.Start); err != nil {
				t.Error(err)
				return
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v: %s", err, &out)
			}
			for line := range strings.Lines(out.String()) {
				if fd, _, _ := strings.Cut(line, " "); !inherited[fd] {
					t.Errorf("inherited: %s", line)
				}
			}
		})
	}
	all.Wait()
}
