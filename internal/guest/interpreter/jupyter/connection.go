package jupyter

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// Connection tells a kernel where to listen, and a client where it does. It is what stands in a
// kernel's connection file.
type Connection struct {
	Transport string `json:"transport"` // "ipc" or "tcp"
	// IP is an address, or for "ipc" the beginning of the sockets' paths.
	IP        string `json:"ip"`
	Shell     int    `json:"shell_port"`
	IOPub     int    `json:"iopub_port"`
	Stdin     int    `json:"stdin_port"`
	Control   int    `json:"control_port"`
	Heartbeat int    `json:"hb_port"`
	Key       string `json:"key"`
	Scheme    string `json:"signature_scheme"`
	Kernel    string `json:"kernel_name,omitempty"`
}

// LocalConnection returns a connection over Unix sockets in dir. Only those who may enter dir can
// connect, and no port is taken.
func LocalConnection(dir string) Connection {
	return Connection{Transport: "ipc", IP: filepath.Join(dir, "k"), Shell: 1, IOPub: 2, Stdin: 3,
		Control: 4, Heartbeat: 5, Key: NewID(), Scheme: "hmac-sha256"}
}

// PortConnection returns a connection over free ports of loopback, for kernels that know no Unix
// sockets. Another process can take a port before the kernel does: then the kernel does not start.
func PortConnection() (Connection, error) {
	c := Connection{Transport: "tcp", IP: "127.0.0.1", Key: NewID(), Scheme: "hmac-sha256"}
	for _, p := range []*int{&c.Shell, &c.IOPub, &c.Stdin, &c.Control, &c.Heartbeat} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return Connection{}, err
		}
		defer l.Close() // all at once, after the last one has its own
		*p = l.Addr().(*net.TCPAddr).Port
	}
	return c, nil
}

// Write writes the connection file into dir and returns its path.
func (c Connection) Write(dir string) (string, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "connection.json")
	if err := os.WriteFile(name, raw, 0o600); err != nil {
		return "", fmt.Errorf("connection file: %w", err)
	}
	return name, nil
}

// address returns the network and the address of a port.
func (c Connection) address(port int) (network, addr string) {
	if c.Transport == "ipc" {
		return "unix", c.IP + "-" + strconv.Itoa(port)
	}
	return "tcp", net.JoinHostPort(c.IP, strconv.Itoa(port))
}
