//go:build linux

package microvm_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/linux/tap"
)

// This file is a VMM that has no machine: it speaks Firecracker's API as that is documented, opens
// the files and the TAP device that it is told of, prints to the console, and makes and loads
// snapshots. A network namespace of this host's kernel takes the place of the machine's own kernel, so
// the frames on the link are real ones. It misbehaves as it is told.

// Names by which this binary is the VMM or its machine.
const (
	fakeVMMName     = "/firecracker"
	fakeMachineName = "fake-machine"
	strangerName    = "fake-stranger"
	fakeVersion     = "1.99.0"
)

// stranger is a uid that no account has.
const stranger = 54321

// behaviour is how a fake VMM misbehaves. The places are requests, such as "PUT /actions". It stands
// in the initrd, which a real VMM would boot.
type behaviour struct {
	DieAt, HangAt, GarbageAt, HugeAt, HugeHeadAt, RefuseAt, RedirectAt string

	Start string // "die", "hang", "symlink", "file", "foreign"
	Save  string // "short", "long", "empty state", "big state", "links", "fill"
	Load  string // "die"
	Talk  bool   // floods the console
}

// behaviourMark begins the behaviour in the initrd.
const behaviourMark = "fake VMM: "

// playFake plays the VMM, if this process is one.
func playFake() bool {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "--version" && filepath.Base(os.Args[0]) == "firecracker":
		fmt.Printf("Firecracker v%s\n\nSupported snapshot data format versions: 5.0.0\n", fakeVersion)
	case os.Args[0] == fakeVMMName:
		if err := (&fakeVMM{}).run(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "fake VMM:", err)
			unix.Exit(1)
		}
	case os.Args[0] == fakeMachineName:
		fmt.Fprintln(os.Stderr, "fake machine:", fakeMachine())
		unix.Exit(1)
	case os.Args[0] == strangerName:
		fmt.Fprintln(os.Stderr, "as a stranger:", asStranger(os.Args[1:]))
		unix.Exit(1)
	default:
		return false
	}
	unix.Exit(0) // os.Exit takes a second with the race detector
	return true
}

// asStranger runs this binary as a user without any right, on a host that opens its TAP devices to all
// users, as most do. It has a mount namespace of its own.
func asStranger(args []string) error {
	const node = "/tmp/tun"
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("tmp", "/tmp", "tmpfs", 0, "mode=1777"),
		unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(10, 200))), os.Chmod(node, 0o666),
		unix.Mount(node, "/dev/net/tun", "", unix.MS_BIND, ""),
		os.Chdir("/tmp"), syscall.Setgroups(nil), syscall.Setgid(stranger), syscall.Setuid(stranger))
	if err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", append([]string{"test"}, args...), []string{"TMPDIR=/tmp", "HOME=/tmp", "PATH=" + os.Getenv("PATH"), "CARREL_REQUIRE=" + os.Getenv("CARREL_REQUIRE")})
}

// fakeConfig is what a VMM is told by requests, and what it saves.
type fakeConfig struct {
	CPUs     int
	MemoryMB int
	Kernel   string
	Initrd   string
	Args     string
	Drives   []fakeDrive
	Device   string
	MAC      string
}

type fakeDrive struct {
	ID       string `json:"drive_id"`
	Path     string `json:"path_on_host"`
	Root     *bool  `json:"is_root_device"`
	ReadOnly *bool  `json:"is_read_only"`
	file     *os.File
}

// fakeVMM is the process.
type fakeVMM struct {
	does   behaviour
	config fakeConfig
	began  bool // the machine was started or loaded
	paused bool

	running sync.RWMutex // held for writing while the machine is paused
	memory  string       // what the machine remembers
	told    []guest.MachineRequest
	escaped []string
}

// run is the VMM's life.
func (v *fakeVMM) run(args []string) error {
	if len(args) != 4 || args[0] != "--id" || args[2] != "--api-sock" || len(args[1]) > 64 || strings.ContainsAny(args[1], "/_.") {
		return fmt.Errorf("arguments %q", args)
	}
	fmt.Println("fake VMM", args[1])
	initrd, err := os.ReadFile("/initrd")
	if err != nil {
		return err
	}
	if _, text, ok := bytes.Cut(initrd, []byte(behaviourMark)); ok {
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(&v.does); err != nil {
			return err
		}
	}
	for _, device := range []string{"/dev/kvm", "/dev/net/tun", "/dev/urandom"} {
		f, err := os.OpenFile(device, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		f.Close()
	}
	if done, err := v.listenBadly(args[3]); done || err != nil {
		return err
	}
	l, err := net.Listen("unix", args[3])
	if err != nil {
		return err
	}
	return http.Serve(l, http.HandlerFunc(v.serve))
}

// listenBadly does what a VMM should not do instead of listening.
func (v *fakeVMM) listenBadly(at string) (done bool, err error) {
	switch v.does.Start {
	case "die":
		return true, nil
	case "hang":
		time.Sleep(time.Hour)
	case "symlink": // in the driver's namespace there is such a file
		if err := os.Symlink("/proc/self/fd/0", at); err != nil {
			return true, err
		}
		time.Sleep(time.Hour)
	case "file":
		if err := os.WriteFile(at, nil, 0o666); err != nil {
			return true, err
		}
		time.Sleep(time.Hour)
	case "foreign": // another process listens
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrUnix{Name: at})
		}
		if err != nil {
			return true, err
		}
		_, err = os.StartProcess(fakeVMMName, []string{fakeMachineName, "listen"}, &os.ProcAttr{Files: []*os.File{os.NewFile(uintptr(fd), "socket"), os.Stdout, os.Stderr}})
		if err != nil {
			return true, err
		}
		time.Sleep(time.Hour)
	}
	return false, nil
}

// serve answers one request, or misbehaves.
func (v *fakeVMM) serve(w http.ResponseWriter, r *http.Request) {
	place := r.Method + " " + r.URL.Path
	switch place {
	case v.does.DieAt:
		unix.Exit(0)
	case v.does.HangAt:
		time.Sleep(time.Hour)
	case v.does.GarbageAt, v.does.HugeHeadAt:
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		if place == v.does.GarbageAt {
			_, _ = c.Write(bytes.Repeat([]byte{0, 0xff, '\n'}, 1000))
			return
		}
		_, err = io.WriteString(c, "HTTP/1.1 204 No Content\r\n")
		for i := 0; err == nil; i++ {
			_, err = fmt.Fprintf(c, "X-%d: %s\r\n", i, strings.Repeat("x", 1000))
		}
		return
	case v.does.HugeAt:
		var err error
		for err == nil {
			_, err = w.Write(make([]byte, 1<<20))
		}
		return
	case v.does.RefuseAt:
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"fault_message":"not today \u001b[2J %s"}`, strings.Repeat("x", 5000))
		return
	case v.does.RedirectAt:
		http.Redirect(w, r, "http://192.0.2.1/", http.StatusTemporaryRedirect)
		return
	}
	if place == "GET /" {
		state := map[bool]string{true: "Paused", false: "Running"}[v.paused]
		_ = json.NewEncoder(w).Encode(map[string]string{"app_name": "Firecracker", "id": "x", "state": state, "vmm_version": fakeVersion})
		return
	}
	if err := v.obey(place, json.NewDecoder(r.Body)); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"fault_message": err.Error()})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// obey does what a request says. A field that the documentation does not have is refused.
func (v *fakeVMM) obey(place string, in *json.Decoder) error {
	in.DisallowUnknownFields()
	switch place {
	case "PUT /machine-config":
		var b struct {
			CPUs   *int `json:"vcpu_count"`
			Memory *int `json:"mem_size_mib"`
		}
		if err := in.Decode(&b); err != nil || b.CPUs == nil || b.Memory == nil || *b.CPUs < 1 || *b.CPUs > 32 || v.began {
			return fmt.Errorf("machine %+v: %w", b, err)
		}
		v.config.CPUs, v.config.MemoryMB = *b.CPUs, *b.Memory
		return nil
	case "PUT /boot-source":
		var b struct {
			Kernel string `json:"kernel_image_path"`
			Initrd string `json:"initrd_path"`
			Args   string `json:"boot_args"`
		}
		if err := in.Decode(&b); err != nil || v.began {
			return fmt.Errorf("boot source: %w", err)
		}
		v.config.Kernel, v.config.Initrd, v.config.Args = b.Kernel, b.Initrd, b.Args
		return nil
	case "PUT /network-interfaces/eth0":
		var b struct {
			ID     string `json:"iface_id"`
			MAC    string `json:"guest_mac"`
			Device string `json:"host_dev_name"`
		}
		if err := in.Decode(&b); err != nil || b.ID != "eth0" || v.began {
			return fmt.Errorf("interface %+v: %w", b, err)
		}
		v.config.Device, v.config.MAC = b.Device, b.MAC
		return nil
	case "PUT /actions":
		var b struct {
			Type string `json:"action_type"`
		}
		if err := in.Decode(&b); err != nil || b.Type != "InstanceStart" || v.began {
			return fmt.Errorf("action %q: %w", b.Type, err)
		}
		return v.start()
	case "PATCH /vm":
		var b struct {
			State string `json:"state"`
		}
		if err := in.Decode(&b); err != nil {
			return err
		}
		return v.change(b.State)
	case "PUT /snapshot/create":
		return v.save(in)
	case "PUT /snapshot/load":
		err := v.load(in)
		if err != nil {
			fmt.Println("load:", err)
			time.AfterFunc(10*time.Millisecond, func() { unix.Exit(1) }) // as documented
		}
		return err
	}
	if id, ok := strings.CutPrefix(place, "PUT /drives/"); ok {
		var d fakeDrive
		if err := in.Decode(&d); err != nil || d.ID != id || d.Root == nil || d.ReadOnly == nil || *d.Root || v.began {
			return fmt.Errorf("drive %s: %w", id, err)
		}
		v.config.Drives = append(v.config.Drives, d)
		return nil
	}
	return errors.New("no such request: " + place)
}

// change pauses or resumes the machine.
func (v *fakeVMM) change(state string) error {
	switch {
	case !v.began:
		return errors.New("there is no machine")
	case state == "Paused" && !v.paused:
		v.running.Lock()
		v.paused = true
	case state == "Resumed" && v.paused:
		v.paused = false
		v.running.Unlock()
	case state != "Paused" && state != "Resumed":
		return errors.New("no such state: " + state)
	}
	return nil
}

// start boots the machine.
func (v *fakeVMM) start() error {
	kernel, err := os.ReadFile(v.config.Kernel)
	if err != nil || !bytes.HasPrefix(kernel, []byte("\x7fELF")) {
		return fmt.Errorf("the kernel: %w", err)
	}
	if _, err := os.ReadFile(v.config.Initrd); err != nil {
		return err
	}
	order, err := boot.Decode(v.config.Args)
	if err != nil {
		return err
	}
	if err := v.openDrives(); err != nil {
		return err
	}
	v.began = true
	switch {
	case order.Trial:
		v.endWith(boot.Works)
		return nil
	case order.Extract:
		b := make([]byte, 512)
		if _, err := v.config.Drives[0].file.ReadAt(b, writtenAt); err != nil {
			return err
		}
		if _, err := v.config.Drives[1].file.WriteAt(append([]byte("tar of "), b...), 0); err != nil {
			return err
		}
		v.endWith(boot.Extracted)
		return nil
	}
	v.memory = "booted"
	return v.connect()
}

// endWith ends the VMM after its answer, as a machine does that resets.
func (v *fakeVMM) endWith(line string) {
	fmt.Println(line)
	time.AfterFunc(20*time.Millisecond, func() { unix.Exit(0) })
}

// openDrives opens the disks as they are described.
func (v *fakeVMM) openDrives() (err error) {
	for i, d := range v.config.Drives {
		flags := os.O_RDWR
		if *d.ReadOnly {
			flags = os.O_RDONLY
			if f, err := os.OpenFile(d.Path, os.O_RDWR, 0); err == nil {
				f.Close()
				return fmt.Errorf("%s can be written to", d.Path)
			}
		}
		if v.config.Drives[i].file, err = os.OpenFile(d.Path, flags, 0); err != nil {
			return err
		}
	}
	return nil
}

// fakeSaved is a state file.
type fakeSaved struct {
	Magic  string
	Config fakeConfig
	Memory string
}

const fakeMagic = "fake Firecracker"

// save writes a snapshot.
func (v *fakeVMM) save(in *json.Decoder) error {
	var b struct {
		Type   string `json:"snapshot_type"`
		State  string `json:"snapshot_path"`
		Memory string `json:"mem_file_path"`
	}
	if err := in.Decode(&b); err != nil || b.Type != "Full" || !v.paused {
		return fmt.Errorf("snapshot %+v: %w", b, err)
	}
	size := int64(v.config.MemoryMB) << 20
	state, err := json.Marshal(fakeSaved{fakeMagic, v.config, v.memory})
	if err != nil {
		return err
	}
	switch v.does.Save {
	case "short":
		size -= 4096
	case "long":
		size += 4096
	case "empty state":
		state = nil
	case "big state":
		state = make([]byte, 65<<20)
	case "links":
		for _, name := range []string{b.State, b.Memory} {
			if err := os.Remove(name); err == nil {
				v.escaped = append(v.escaped, "removed "+name)
				_ = os.Symlink("/etc/passwd", name)
			}
		}
	case "fill":
		signal.Ignore(syscall.SIGXFSZ)
		f, err := os.OpenFile(b.Memory, os.O_RDWR, 0)
		if err == nil {
			_, err = f.WriteAt(make([]byte, 1), 1<<40)
		}
		if err == nil {
			v.escaped = append(v.escaped, "wrote a file of a terabyte")
		}
	}
	if err := os.WriteFile(b.State, state, 0o600); err != nil {
		return err
	}
	f, err := os.OpenFile(b.Memory, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return err
	}
	_, err1 := f.WriteAt([]byte(fakeMagic), 0)
	_, err2 := f.WriteAt([]byte(v.memory), size/2+100)
	return errors.Join(err1, err2)
}

// load loads one.
func (v *fakeVMM) load(in *json.Decoder) error {
	var b struct {
		State  string `json:"snapshot_path"`
		Memory struct {
			Type string `json:"backend_type"`
			Path string `json:"backend_path"`
		} `json:"mem_backend"`
		Resume bool `json:"resume_vm"`
	}
	if err := in.Decode(&b); err != nil || b.Memory.Type != "File" || v.began || len(v.config.Drives) > 0 {
		return fmt.Errorf("load %+v: %w", b, err)
	}
	if v.does.Load == "die" {
		unix.Exit(1)
	}
	text, err := os.ReadFile(b.State)
	if err != nil {
		return err
	}
	var s fakeSaved
	if err := json.Unmarshal(text, &s); err != nil || s.Magic != fakeMagic {
		return fmt.Errorf("the state: %w", err)
	}
	f, err := os.Open(b.Memory.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	mapped, err := unix.Mmap(int(f.Fd()), 0, s.Config.MemoryMB<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	at := len(mapped)/2 + 100
	if string(mapped[:len(fakeMagic)]) != fakeMagic || string(mapped[at:at+len(s.Memory)]) != s.Memory {
		return errors.New("the memory is another one's")
	}
	copy(mapped, "changed by this machine") // which no other fork may see
	if w, err := os.OpenFile(b.Memory.Path, os.O_RDWR, 0); err == nil {
		if _, err := w.WriteAt([]byte("x"), 0); err == nil {
			return errors.New("the memory can be changed")
		}
		w.Close()
	}
	v.config, v.memory = s.Config, s.Memory
	if err := v.openDrives(); err != nil {
		return err
	}
	v.began, v.paused = true, true
	v.running.Lock()
	return v.connect()
}

// connect opens the TAP device, as a VMM does, and starts the machine's network.
func (v *fakeVMM) connect() error {
	if v.config.MAC != driver.GuestMAC {
		return errors.New("another address: " + v.config.MAC)
	}
	card, err := openTAP(v.config.Device)
	if err != nil {
		return err
	}
	defer card.Close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "machine"), os.NewFile(uintptr(fds[1]), "machine")
	defer ours.Close()
	defer theirs.Close()
	// The machine's kernel is a namespace of this one. There is no /proc here, by which ids could be
	// mapped.
	_, err = os.StartProcess(fakeVMMName, []string{fakeMachineName, "run"}, &os.ProcAttr{
		Files: []*os.File{theirs, os.Stdout, os.Stderr, card},
		Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
			AmbientCaps: []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW}},
	})
	if err != nil {
		return fmt.Errorf("the machine's kernel: %w", err)
	}
	theirs.Close()
	f, err := tap.Receive(int(ours.Fd()))
	if err != nil {
		return fmt.Errorf("the machine's network: %w", err)
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return err
	}
	go v.serveGuest(l)
	if v.does.Talk {
		go func() {
			for {
				fmt.Println(strings.Repeat("flood ", 1000))
			}
		}()
	}
	return nil
}

// openTAP opens a device by its name, with the header and offloads that Firecracker's card has.
func openTAP(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6)
	}
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, cardHeader)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("TAP device %s: %w", name, err)
	}
	return f, nil
}

// Sizes of the headers before a frame: the card's, and that of the machine's own device.
const (
	cardHeader    = 12
	machineHeader = 10
)

// fakeMachine is the machine: its network has a TAP device of its own, whose other end is the card.
func fakeMachine() error {
	if len(os.Args) == 2 && os.Args[1] == "listen" {
		if err := unix.Listen(0, 4); err != nil {
			return err
		}
		time.Sleep(time.Hour)
	}
	card := os.NewFile(3, "card")
	eth0, l, err := machineNetwork()
	if err != nil {
		return err
	}
	if err := tap.Send(0, l); err != nil {
		return err
	}
	failed := make(chan error)
	go func() { failed <- pump(int(eth0.Fd()), machineHeader, int(card.Fd()), cardHeader) }()
	go func() { failed <- pump(int(card.Fd()), cardHeader, int(eth0.Fd()), machineHeader) }()
	err = <-failed
	runtime.KeepAlive(card)
	runtime.KeepAlive(eth0)
	return err
}

// machineNetwork makes eth0, and listens where a guest does. The namespace is that of the whole
// process.
func machineNetwork() (eth0, listener *os.File, err error) {
	runtime.LockOSThread()
	if eth0, err = tap.Setup(tap.Config{MTU: 1500, Here: true, Device: "/dev/net/tun"}); err != nil {
		return nil, nil, err
	}
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", carrel.GuestPort))
	if err != nil {
		return nil, nil, err
	}
	listener, err = l.(*net.TCPListener).File()
	return eth0, listener, err
}

// pump carries frames from one device to another, with the header that each has.
func pump(from, fromHeader, to, toHeader int) error {
	if err := errors.Join(unix.SetNonblock(from, false), unix.SetNonblock(to, false)); err != nil {
		return err
	}
	buf := make([]byte, 1<<17)
	for {
		n, err := unix.Read(from, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n < fromHeader {
			return fmt.Errorf("read %d bytes of a frame: %w", n, err)
		}
		out := append(buf[:machineHeader:machineHeader], make([]byte, toHeader-machineHeader)...)
		out = append(out, buf[fromHeader:n]...)
		if _, err := unix.Write(to, out); err != nil && err != unix.EINVAL && err != unix.EIO {
			return fmt.Errorf("write %d bytes of a frame: %w", len(out), err)
		}
	}
}

// writtenAt is where the machine writes to its disk, in bytes: a place that a filesystem of 64 MiB
// leaves alone.
const writtenAt = 40 << 20

// serveGuest answers as the guest does, and tells what the machine is.
func (v *fakeVMM) serveGuest(l net.Listener) {
	var mu sync.Mutex // guards memory and told
	mux := http.NewServeMux()
	disk := v.config.Drives[len(v.config.Drives)-1].file
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("POST "+guest.MachinePath, func(w http.ResponseWriter, r *http.Request) {
		var req guest.MachineRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		v.told = append(v.told, req)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /told", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_ = json.NewEncoder(w).Encode(v.told)
	})
	mux.HandleFunc("/memory", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if len(b) > 0 {
			v.memory = string(b)
		}
		_, _ = io.WriteString(w, v.memory)
	})
	mux.HandleFunc("/disk", func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if len(b) > 0 {
			_, err = disk.WriteAt(append(b, 0), writtenAt)
		}
		read := make([]byte, 512)
		_, rerr := disk.ReadAt(read, writtenAt)
		if err = errors.Join(err, rerr); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
		text, _, _ := bytes.Cut(read, []byte{0})
		_, _ = w.Write(text)
	})
	mux.HandleFunc("GET /images", func(w http.ResponseWriter, _ *http.Request) {
		for _, d := range v.config.Drives[:2] {
			b := make([]byte, 32)
			n, _ := d.file.ReadAt(b, 0)
			_, _ = w.Write(b[:n])
		}
	})
	mux.HandleFunc("GET /config", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v.config) })
	mux.HandleFunc("GET /escaped", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v.escaped) })
	mux.HandleFunc("GET /escapes", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(escapes()) })
	mux.HandleFunc("GET /bulk", func(w http.ResponseWriter, _ *http.Request) {
		for i := range bulkMB {
			_, _ = w.Write(bytes.Repeat([]byte{byte(i)}, 1<<20))
		}
	})
	mux.HandleFunc("POST /bulk", func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		_, _ = io.Copy(h, r.Body)
		_, _ = fmt.Fprintf(w, "%x", h.Sum(nil))
	})
	mux.HandleFunc("POST /crash", func(http.ResponseWriter, *http.Request) {
		fmt.Println("Kernel panic - not syncing: it was asked to")
		unix.Exit(0)
	})
	err := http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.running.RLock()
		defer v.running.RUnlock()
		mux.ServeHTTP(w, r)
	}))
	fmt.Fprintln(os.Stderr, "fake guest:", err)
}

// bulkMB is how much /bulk sends.
const bulkMB = 16

// escapes tries what a VMM that was taken over would try, and returns what succeeds.
func escapes() (out []string) {
	try := func(what string, err error) {
		if err == nil {
			out = append(out, what)
		}
	}
	for _, dir := range []string{"/", "/disks", "/save", "/dev", "/fd"} {
		try("write to "+dir, os.WriteFile(filepath.Join(dir, "new"), []byte("x"), 0o600))
	}
	for _, file := range []string{"/kernel", "/initrd", "/firecracker", "/disks/root", "/disks/guest"} {
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		try("write to "+file, err)
		if err == nil {
			f.Close()
		}
	}
	for _, file := range []string{"/proc/self", "/etc/passwd", "/usr", "/sys"} {
		_, err := os.Stat(file)
		try("see "+file, err)
	}
	try("make a device", unix.Mknod("/run/disk", unix.S_IFBLK|0o600, int(unix.Mkdev(8, 0))))
	try("mount", unix.Mount("x", "/run", "tmpfs", 0, ""))
	try("become root", syscall.Setuid(0))
	_, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	try("open a packet socket", err)
	try("raise its limit of files", unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}))
	err = nil
	for i := 0; err == nil && i < 100; i++ {
		err = os.WriteFile(fmt.Sprintf("/run/fill-%d", i), make([]byte, 4096), 0o600)
	}
	try("fill its directory without end", err)
	return out
}
