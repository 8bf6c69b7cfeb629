//go:build linux

package microvm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// This file speaks QMP, the protocol by which QEMU is controlled. A VMM may be hostile: its answers
// are bounded, and tell nothing but success or failure. The form:
// https://www.qemu.org/docs/master/interop/qmp-spec.html

// controlSocket is the socket in Spec.Dir on which a VMM is controlled. QEMU answers one connection
// after the other, so a new daemon just connects.
const controlSocket = "control"

// Bounds of answers.
const (
	maxAnswer = 64 << 10 // bytes of a line
	maxEvents = 1000     // lines that are no answer
)

// listenControl makes the socket. The path may be longer than a socket's name may be, so the
// directory is named by its descriptor.
func listenControl(dir string) (*os.File, error) {
	d, name, err := controlName(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), controlSocket)
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: name})
	if err == nil {
		err = unix.Listen(fd, 4)
	}
	if err != nil {
		f.Close()
		return nil, os.NewSyscallError("control socket", err)
	}
	return f, nil
}

// controlName opens the directory, and returns a short name of the socket that is valid until the
// directory is closed.
func controlName(dir string) (*os.File, string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, "", err
	}
	return d, fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), controlSocket), nil
}

// control is a connection to a VMM.
type control struct {
	conn *net.UnixConn
	in   *bufio.Reader
	stop func() bool
}

// dialControl connects. When ctx ends, all calls fail. before, unless nil, runs when the first
// commands have been sent and before their answers are awaited.
func dialControl(ctx context.Context, dir string, before func() error, first ...string) (*control, error) {
	d, name, err := controlName(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	q := &control{conn: c.(*net.UnixConn), in: bufio.NewReaderSize(c, maxAnswer)}
	q.stop = context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	commands := append([]string{"qmp_capabilities"}, first...)
	for _, name := range commands {
		if err == nil {
			err = q.send(name, nil, nil)
		}
	}
	if err == nil && before != nil {
		err = before()
	}
	for range commands {
		if err == nil {
			_, err = q.answer()
		}
	}
	if err != nil {
		q.close()
		return nil, q.explain(ctx, err)
	}
	return q, nil
}

// close ends the connection.
func (q *control) close() {
	q.stop()
	_ = q.conn.Close()
}

// explain prefers the reason of ctx's end.
func (q *control) explain(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// call sends a command and waits for its answer. file, unless nil, goes along.
func (q *control) call(ctx context.Context, name string, args any, file *os.File) (json.RawMessage, error) {
	err := q.send(name, args, file)
	var answer json.RawMessage
	if err == nil {
		answer, err = q.answer()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, q.explain(ctx, err))
	}
	return answer, nil
}

// send writes a command.
func (q *control) send(name string, args any, file *os.File) error {
	b, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{name, args})
	if err != nil {
		return err
	}
	var rights []byte
	if file != nil {
		rights = syscall.UnixRights(int(file.Fd()))
	}
	_, _, err = q.conn.WriteMsgUnix(append(b, '\n'), rights, nil)
	return err
}

// reply is a line from the VMM.
type reply struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
}

// answer reads lines until one is an answer.
func (q *control) answer() (json.RawMessage, error) {
	for range maxEvents {
		line, err := q.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		r, err := parseReply(line)
		if err != nil || r.Return != nil {
			return r.Return, err
		}
	}
	return nil, errors.New("the machine's monitor talks without an answer")
}

// parseReply reads one line. An event or a greeting gives neither a value nor an error.
func parseReply(line []byte) (r reply, err error) {
	if err := json.Unmarshal(line, &r); err != nil {
		return reply{}, fmt.Errorf("the machine's monitor: %w", err)
	}
	if r.Error != nil {
		return reply{}, errors.New(words([]byte(r.Error.Desc)))
	}
	r.Return = append(json.RawMessage(nil), r.Return...) // the line is overwritten
	if len(r.Return) == 0 {
		r.Return = nil
	}
	return r, nil
}

// status asks for a value with a field "status".
func (q *control) status(ctx context.Context, command string) (string, error) {
	answer, err := q.call(ctx, command, nil, nil)
	if err != nil {
		return "", err
	}
	var s struct {
		Status string `json:"status"`
	}
	err = json.Unmarshal(answer, &s)
	return s.Status, err
}

// Waits between two questions.
const (
	firstLook = time.Millisecond
	lastLook  = 20 * time.Millisecond
)

// await asks until over says that the status is a last one.
func (q *control) await(ctx context.Context, command string, over func(status string) bool) (string, error) {
	for wait := firstLook; ; wait = min(2*wait, lastLook) {
		s, err := q.status(ctx, command)
		if err != nil || over(s) {
			return s, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// ignoreShared sets the capability that leaves the memory to its file.
func (q *control) ignoreShared(ctx context.Context) error {
	_, err := q.call(ctx, "migrate-set-capabilities", map[string]any{
		"capabilities": []map[string]any{{"capability": capability, "state": true}}}, nil)
	return err
}

// removeControl removes the socket.
func removeControl(dir string) { _ = os.Remove(filepath.Join(dir, controlSocket)) }
