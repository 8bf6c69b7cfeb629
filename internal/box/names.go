//go:build linux

package box

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/ns"
)

// maxNames bounds the number of different names that are reported, because the command chooses
// them.
const maxNames = 256

// names answers every lookup of a name at once with "there is none". A program that waited for an
// answer would seem to hang.
func (b *builder) names() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: 53, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		b.missing = append(b.missing, "names that are looked up are not reported: "+err.Error())
		return
	}
	go func() {
		told := map[string]bool{}
		buf := make([]byte, 1500)
		for {
			n, from, err := unix.Recvfrom(fd, buf, 0)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return
			}
			reply, name := refuseName(buf[:n])
			if reply == nil {
				continue
			}
			_ = unix.Sendto(fd, reply, 0, from)
			if !told[name] && len(told) < maxNames {
				told[name] = true
				_ = b.conn.send(message{Word: named, Text: name})
			}
		}
	}()
}

// refuseName makes the answer to a question, and returns the question's name. It returns nil if q
// is no question. https://www.rfc-editor.org/rfc/rfc1035#section-4
func refuseName(q []byte) (reply []byte, name string) {
	const header = 12
	if len(q) < header || q[2]&0x80 != 0 || q[4] != 0 || q[5] != 1 {
		return nil, ""
	}
	var labels []string
	at := header
	for {
		if at >= len(q) {
			return nil, ""
		}
		n := int(q[at])
		at++
		if n == 0 {
			break
		}
		if n > 63 || at+n > len(q) || at+n-header > 254 {
			return nil, ""
		}
		labels = append(labels, string(q[at:at+n]))
		at += n
	}
	if at += 4; at > len(q) { // type and class
		return nil, ""
	}
	reply = append([]byte(nil), q[:at]...)
	reply[2] = q[2]&0x79 | 0x80 // a response; opcode and "recursion desired" as in q
	reply[3] = 0x83             // recursion available, no such name
	for i := 6; i < header; i++ {
		reply[i] = 0
	}
	return reply, strings.ToValidUTF8(strings.Join(labels, "."), "?")
}

// resolver mounts our file over /etc/resolv.conf, or over the file that it links to.
func (b *builder) resolver() error {
	from, have := b.files[resolvConf]
	if !have {
		return nil
	}
	path := "/etc/resolv.conf"
	for range 8 {
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = filepath.Clean(to)
	}
	if real, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(real, filepath.Base(path))
	}
	target, err := b.target(path, false)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil // this root has no such file; the C library then uses 127.0.0.1
	}
	if err != nil {
		return err
	}
	defer unix.Close(target)
	tree, err := ns.Clone(from)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return ns.Attach(tree, target)
}
