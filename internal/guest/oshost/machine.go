package oshost

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/agent"
)

// Machine is the kernel of a virtual machine, which belongs to the sandbox.
type Machine struct{}

var _ agent.Machine = Machine{}

// Do implements agent.Machine. It does as much as it can, and returns all errors.
func (Machine) Do(req guest.MachineRequest, local, remote net.Addr) error {
	if req.Flush {
		unix.Sync()
	}
	var errs []error
	if !req.Time.IsZero() {
		ts := unix.NsecToTimespec(req.Time.UnixNano())
		errs = append(errs, os.NewSyscallError("clock_settime", unix.ClockSettime(unix.CLOCK_REALTIME, &ts)))
	}
	if len(req.Entropy) > 0 {
		errs = append(errs, reseed(req.Entropy))
	}
	if req.NewBoot {
		errs = append(errs, newBootID())
	}
	if req.Sever {
		errs = append(errs, sever(local, remote))
	}
	return errors.Join(errs...)
}

// Requests of random(4) that x/sys/unix does not name.
const (
	rndAddEntropy = 0x40085203
	rndReseed     = 0x5207
	maxEntropy    = 256 // bytes
)

// reseed mixes entropy into the kernel's random numbers, and has it draw new keys for them.
func reseed(entropy []byte) error {
	f, err := os.OpenFile("/dev/urandom", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var pool struct {
		bits, size int32
		data       [maxEntropy]byte
	}
	pool.size = int32(copy(pool.data[:], entropy))
	pool.bits = 8 * pool.size
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), rndAddEntropy, uintptr(unsafe.Pointer(&pool))); errno != 0 {
		return os.NewSyscallError("ioctl RNDADDENTROPY", errno)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), rndReseed, 0); errno != 0 {
		return os.NewSyscallError("ioctl RNDRESEEDCRNG", errno)
	}
	return nil
}

// bootIDFile is where programs read the name of the machine's boot.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// newBootID lays another file over the kernel's, which can't be changed. The file has no name of its
// own afterwards. It lies among the devices, which have a filesystem in memory: to mount one for it
// would take an emulated machine several times as long.
func newBootID() error {
	var id [16]byte
	_, _ = rand.Read(id[:])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	text := fmt.Sprintf("%x-%x-%x-%x-%x\n", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	for unix.Unmount(bootIDFile, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil { // an earlier one
	}
	name := "/dev/.boot-" + text[:8]
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o444)
	if err != nil {
		return &os.PathError{Op: "create", Path: name, Err: err}
	}
	defer unix.Unlink(name)
	_, err = unix.Write(fd, []byte(text))
	if err = errors.Join(err, unix.Fchmod(fd, 0o444), unix.Close(fd)); err != nil {
		return err
	}
	return os.NewSyscallError("mount", unix.Mount(name, bootIDFile, "", unix.MS_BIND, ""))
}

// Messages of sock_diag(7), which x/sys/unix does not name. All numbers but ports are in the
// machine's order.
const (
	sockDiagByFamily = 20
	sockDestroy      = 21
	diagRequest      = 56 // bytes of a request after the header
	diagSocketAt     = 8  // of the socket's ID in a request
	diagAnswer       = 72 // bytes of an answer at least
	diagAnswerAt     = 4  // of the socket's ID in an answer
	diagSocket       = 48 // bytes of an ID
	allButListening  = 0xfff &^ (1 << 10)
)

// sever ends every TCP connection that does not begin and end on this machine, except one.
func sever(local, remote net.Addr) error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(s)
	_ = unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5})
	var errs []error
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		list, err := connections(s, family)
		errs = append(errs, err)
		for _, id := range list {
			if ours(id, family, local, remote) {
				continue
			}
			errs = append(errs, ask(s, sockDestroy, unix.NLM_F_REQUEST|unix.NLM_F_ACK, family, id, func([]byte) {}))
		}
	}
	return errors.Join(errs...)
}

// connections lists the IDs of all sockets of a family that are not loopback's.
func connections(s int, family byte) (list [][]byte, err error) {
	err = ask(s, sockDiagByFamily, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, family, nil, func(b []byte) {
		if len(b) < diagAnswer {
			return
		}
		id := append([]byte(nil), b[diagAnswerAt:diagAnswerAt+diagSocket]...)
		if from, to := ends(id, family); !from.Addr().IsLoopback() && !to.Addr().IsLoopback() {
			list = append(list, id)
		}
	})
	return list, err
}

// ends are the two ends of a socket.
func ends(id []byte, family byte) (from, to netip.AddrPort) {
	size := 4
	if family == unix.AF_INET6 {
		size = 16
	}
	at := func(address, port int) netip.AddrPort {
		a, _ := netip.AddrFromSlice(id[address : address+size])
		return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(id[port:]))
	}
	return at(4, 0), at(20, 2)
}

// ours reports whether a socket has these ends.
func ours(id []byte, family byte, local, remote net.Addr) bool {
	l, ok1 := local.(*net.TCPAddr)
	r, ok2 := remote.(*net.TCPAddr)
	if !ok1 || !ok2 {
		return false
	}
	from, to := ends(id, family)
	plain := func(a *net.TCPAddr) netip.AddrPort {
		return netip.AddrPortFrom(a.AddrPort().Addr().Unmap().WithZone(""), uint16(a.Port))
	}
	return from == plain(l) && to == plain(r)
}

// ask sends a request about TCP sockets, and calls each with every answer.
func ask(s int, kind, flags uint16, family byte, id []byte, each func([]byte)) error {
	b := make([]byte, unix.NLMSG_HDRLEN+diagRequest)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], flags)
	req := b[unix.NLMSG_HDRLEN:]
	req[0], req[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(req[4:], allButListening)
	copy(req[diagSocketAt:], id)
	if err := unix.Sendto(s, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(s, buf, 0)
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		done, err := answers(buf[:n], each)
		if done || err != nil {
			return err
		}
	}
}

// answers reads the messages of one packet, and reports whether the last one was among them.
func answers(b []byte, each func([]byte)) (done bool, err error) {
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return true, errors.New("a damaged message of netlink")
		}
		body := b[unix.NLMSG_HDRLEN:size]
		switch binary.NativeEndian.Uint16(b[4:]) {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(body) < 4 {
				return true, errors.New("a damaged error of netlink")
			}
			errno := unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
			if errno == 0 || errno == unix.ENOENT { // it ended by itself
				return true, nil
			}
			return true, fmt.Errorf("sock_diag: %w", errno)
		default:
			each(body)
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return false, nil
}
