package keeper

import (
	"errors"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
)

// The operations.
const (
	opPut    = 'P'
	opGet    = 'G'
	opDelete = 'D'
	opList   = 'L'
)

// The outcomes.
const (
	okay     = 0
	notFound = 1
	invalid  = 2
	full     = 3
)

const (
	maxName    = 255
	maxMessage = 64 << 10
	maxList    = 32 << 10
)

// checkName refuses invalid names: empty, long, or with control characters.
func checkName(name string) error {
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errors.New("a name has 1 to 255 characters and no control characters")
	}
	return nil
}

// parseRequest parses a message. files is how many files came with it.
func parseRequest(msg []byte, files int) (op byte, name string, err error) {
	if len(msg) == 0 {
		return 0, "", errors.New("empty request")
	}
	op, name = msg[0], string(msg[1:])
	want := 0
	switch op {
	case opPut:
		want = 1
	case opGet, opDelete:
	case opList:
		if name == "" {
			break
		}
	default:
		return 0, "", errors.New("unknown operation")
	}
	if files != want {
		return 0, "", errors.New("wrong number of files")
	}
	if op != opList || name != "" {
		err = checkName(name)
	}
	return op, name, err
}

// receive reads one message and its files. The caller owns the files, also when there is an error.
func receive(c *net.UnixConn, buf []byte) (n int, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*4))
	n, oobn, flags, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return 0, nil, err
	}
	if msgs, perr := unix.ParseSocketControlMessage(oob[:oobn]); perr == nil {
		for _, m := range msgs {
			if got, rerr := unix.ParseUnixRights(&m); rerr == nil {
				fds = append(fds, got...)
			}
		}
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return 0, fds, errors.New("message too long")
	}
	return n, fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// checkPeer makes sure that the other side runs as this user, or as root.
func checkPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(cerr, err); err != nil {
		return err
	}
	if int(cred.Uid) != os.Geteuid() && cred.Uid != 0 {
		return &carrel.Error{Op: "keeper", Kind: carrel.Forbidden, Err: errors.New("the other side runs as another user")}
	}
	return nil
}
