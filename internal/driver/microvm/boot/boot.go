// Package boot is the agreement between the microvm driver and carrel-init, the first process of
// its machines. The driver writes an [Order] into the kernel's command line and puts modules into
// the initrd. carrel-init reads both.
package boot

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Names inside the initrd.
const (
	Init    = "init"    // carrel-init
	Modules = "modules" // a directory of modules, whose names sort in the order of loading
)

// The disks, in the order of their devices on the VMM's command line.
const (
	RootDisk  = "/dev/vda" // the template, EROFS
	GuestDisk = "/dev/vdb" // the guest's image, EROFS
	WriteDisk = "/dev/vdc" // the sandbox's writes, ext4
)

// The disks of an extraction.
const (
	ReadDisk = "/dev/vda" // the sandbox's writes
	TarDisk  = "/dev/vdb" // takes the stream
)

// InitFile is the file of a template that names the machine's first process, below the root. Without
// it that is the guest.
const InitFile = "etc/carrel/init"

// MaxInitFile bounds what is read of an InitFile, in bytes.
const MaxInitFile = 256

// ReadInit returns what an InitFile says: the name of a first process, "" for the guest.
func ReadInit(file io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(file, MaxInitFile))
	return strings.TrimSpace(string(text)), err
}

// Systemd is what InitFile holds for systemd, which then has the guest as a service.
const Systemd = "systemd"

// Extracted is the line by which a machine says that it has written the whole stream.
const Extracted = "carrel-init: extracted"

// Works is the line by which a machine of a trial says that it has booted.
const Works = "carrel-init: works"

// Order says what carrel-init does. Everyone inside can read it in /proc/cmdline.
type Order struct {
	// Trial only boots, prints [Works] and ends. The machine then has no disk and no link.
	Trial bool `json:"trial,omitempty"`
	// Extract writes the changes of a disk as a tar stream to another one, and ends. The machine has
	// these two disks only, and no link.
	Extract bool `json:"extract,omitempty"`
	// Grow makes the filesystem of the sandbox's writes as large as its disk.
	Grow     bool     `json:"grow,omitempty"`
	Hostname string   `json:"host,omitempty"`
	MTU      int      `json:"mtu,omitempty"`
	Pids     int      `json:"pids,omitempty"`
	ShmMB    int      `json:"shm,omitempty"`
	Args     []string `json:"args,omitempty"` // the guest's
	Env      []string `json:"env,omitempty"`
}

// key is the parameter's name. A name with a dot would be taken for a module's parameter.
const key = "carrel="

// MaxOrder is the largest parameter, in bytes: the kernel takes 2,048 for its whole command line.
const MaxOrder = 1400

// Encode returns the kernel's parameter.
func (o Order) Encode() (string, error) {
	b, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	text := key + base64.RawURLEncoding.EncodeToString(b)
	if len(text) > MaxOrder {
		return "", fmt.Errorf("the order has %d bytes, more than %d", len(text), MaxOrder)
	}
	return text, nil
}

// Decode finds the order in a kernel's command line.
func Decode(cmdline string) (o Order, err error) {
	for word := range strings.FieldsSeq(cmdline) {
		text, ok := strings.CutPrefix(word, key)
		if !ok {
			continue
		}
		if len(word) > MaxOrder {
			return Order{}, fmt.Errorf("the order has %d bytes, more than %d", len(word), MaxOrder)
		}
		b, err := base64.RawURLEncoding.DecodeString(text)
		if err == nil {
			err = json.Unmarshal(b, &o)
		}
		if err != nil {
			return Order{}, fmt.Errorf("the order: %w", err)
		}
		return o, nil
	}
	return Order{}, errors.New("the kernel's command line has no order")
}
