package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This part takes the devices of a virtual machine from its kernel and writes garbage to them. The
// registers are those of the specification's "Virtio Over MMIO", in its old and its new form.
// https://docs.oasis-open.org/virtio/virtio/v1.2/virtio-v1.2.html

// Directories of the kernel's drivers.
const (
	virtioDevices = "/sys/bus/virtio/devices"
	mmioDriver    = "/sys/bus/platform/drivers/virtio-mmio"
)

// Registers, by their offsets.
const (
	regFeatures     = 0x20
	regFeaturesSel  = 0x24
	regPageSize     = 0x28
	regQueueSel     = 0x30
	regQueueNum     = 0x38
	regQueueAlign   = 0x3c
	regQueuePage    = 0x40
	regQueueReady   = 0x44
	regQueueNotify  = 0x50
	regInterruptAck = 0x64
	regStatus       = 0x70
	regQueueDesc    = 0x80
	regQueueDriver  = 0x90
	regQueueDevice  = 0xa0
	mmioBytes       = 0x200
)

// Of the queues.
const (
	queueSize  = 64
	queueAlign = 64
	availAt    = 16 * queueSize // in a queue's page
	usedAt     = 1216
	pages      = 16
)

// virtio takes all devices, whose registers share pages, fuzzes them for some seconds, and resets the
// machine. Nobody hears it then but the console.
func virtio(args []string) {
	if exe, err := os.Readlink("/proc/1/exe"); err != nil || exe != "/.carrel/guest" {
		result("virtio", errors.New("this is no virtual machine of ours"), "")
		return
	}
	seconds, err := strconv.Atoi(args[0])
	if err != nil {
		result("virtio", err, "")
		return
	}
	// What lies on the disks is soon gone.
	_ = unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE)
	f := &fuzzer{rand: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))}
	if f.mem, err = os.OpenFile("/dev/mem", os.O_RDWR|os.O_SYNC, 0); err == nil {
		err = f.addPages()
	}
	var console, reset *os.File
	if err == nil {
		console, err = os.OpenFile("/dev/console", os.O_WRONLY, 0)
	}
	if err == nil {
		reset, err = os.OpenFile("/proc/sysrq-trigger", os.O_WRONLY, 0)
	}
	if err != nil {
		result("virtio", err, "")
		return
	}
	control("virtio", "it begins")
	if err := f.take(); err != nil {
		fmt.Fprintln(console, "attack:", err)
	}
	f.run(time.Now().Add(time.Duration(seconds) * time.Second))
	fmt.Fprintf(console, "attack: %d writes to the registers of %d devices\n", f.writes, len(f.devices))
	_, _ = reset.WriteString("b")
}

// fuzzer owns devices.
type fuzzer struct {
	mem     *os.File
	rand    *rand.Rand
	devices [][]byte // registers
	ram     [pages][]byte
	at      [pages]uint64 // physical addresses of ram
	writes  int
}

// addPages gives the fuzzer memory whose physical addresses it knows.
func (f *fuzzer) addPages() error {
	size := os.Getpagesize()
	all, err := unix.Mmap(-1, 0, pages*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE|unix.MAP_LOCKED)
	if err != nil {
		return err
	}
	m, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return err
	}
	defer m.Close()
	for i := range f.ram {
		f.ram[i] = all[i*size : (i+1)*size]
		f.ram[i][0] = 1
		var entry [8]byte
		if _, err := m.ReadAt(entry[:], int64(uintptr(unsafe.Pointer(&f.ram[i][0])))/int64(size)*8); err != nil {
			return err
		}
		f.at[i] = binary.NativeEndian.Uint64(entry[:]) & (1<<55 - 1) * uint64(size)
		if f.at[i] == 0 {
			return errors.New("the addresses of memory are hidden")
		}
	}
	return nil
}

// take takes all devices from the kernel, and maps their registers.
func (f *fuzzer) take() error {
	list, err := os.ReadDir(virtioDevices)
	if err != nil {
		return err
	}
	iomem, err := os.ReadFile("/proc/iomem")
	if err != nil {
		return err
	}
	var slots []string
	for _, e := range list {
		path, err := filepath.EvalSymlinks(filepath.Join(virtioDevices, e.Name()))
		if err != nil {
			return err
		}
		slots = append(slots, filepath.Base(filepath.Dir(path)))
	}
	for _, slot := range slots {
		if err := unbind(mmioDriver, slot); err != nil {
			return err
		}
	}
	for _, slot := range slots {
		at := addressOf(iomem, slot)
		if at == 0 {
			return fmt.Errorf("%s has no address", slot)
		}
		page := int64(os.Getpagesize())
		all, err := unix.Mmap(int(f.mem.Fd()), at&^(page-1), int(page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return fmt.Errorf("map %#x: %w", at, err)
		}
		f.devices = append(f.devices, all[at&(page-1):][:mmioBytes])
	}
	return nil
}

// unbind takes a device from its driver. The kernel may wait for the device for ever.
func unbind(driver, device string) error {
	done := make(chan error, 1)
	go func() { done <- os.WriteFile(filepath.Join(driver, "unbind"), []byte(device), 0) }()
	select {
	case err := <-done:
		return err
	case <-time.After(10 * time.Second):
		return fmt.Errorf("%s is not given up", device)
	}
}

// addressOf finds a device's registers.
func addressOf(iomem []byte, slot string) int64 {
	for line := range bytes.Lines(iomem) {
		area, name, _ := strings.Cut(string(line), " : ")
		first, _, _ := strings.Cut(strings.TrimSpace(area), "-")
		if strings.Contains(name, slot) {
			at, _ := strconv.ParseInt(first, 16, 64)
			return at
		}
	}
	return 0
}

// set writes a register.
func (f *fuzzer) set(device []byte, at int, value uint32) {
	*(*uint32)(unsafe.Pointer(&device[at&^3])) = value
	f.writes++
}

// run writes garbage until then.
func (f *fuzzer) run(until time.Time) {
	for time.Now().Before(until) {
		for _, d := range f.devices {
			f.set(d, regStatus, 0)
			for _, status := range []uint32{1, 3} {
				f.set(d, regStatus, status)
			}
			for sel := range uint32(2) {
				f.set(d, regFeaturesSel, sel)
				f.set(d, regFeatures, f.rand.Uint32())
			}
			f.set(d, regStatus, 0xb)
			f.set(d, regPageSize, 4096)
			for q := range uint32(4) {
				f.queue(d, q)
			}
			f.set(d, regStatus, 0xf)
			for range 20 {
				f.offer(d)
			}
			for range 20 {
				f.set(d, f.rand.IntN(mmioBytes), f.rand.Uint32())
			}
			f.set(d, regInterruptAck, 3)
		}
	}
}

// queue sets up a queue in a page of its own, or somewhere that is not memory.
func (f *fuzzer) queue(d []byte, q uint32) {
	f.set(d, regQueueSel, q)
	size := uint32(queueSize)
	if f.rand.IntN(8) == 0 {
		size = f.rand.Uint32()
	}
	f.set(d, regQueueNum, size)
	f.set(d, regQueueAlign, queueAlign)
	at := f.at[q]
	if f.rand.IntN(16) == 0 {
		at = f.wild()
	}
	f.set(d, regQueuePage, uint32(at/4096))
	for reg, address := range map[int]uint64{regQueueDesc: at, regQueueDriver: at + availAt, regQueueDevice: at + usedAt} {
		f.set(d, reg, uint32(address))
		f.set(d, reg+4, uint32(address>>32))
	}
	f.set(d, regQueueReady, 1)
}

// wild is an address: of our memory, of registers, or of nothing.
func (f *fuzzer) wild() uint64 {
	return [...]uint64{f.at[f.rand.IntN(pages)] + uint64(f.rand.IntN(4096)), 0xfeb00000, 0xfec00000, 1<<64 - 16, 1 << 40, 0}[f.rand.IntN(6)]
}

// offer fills a queue with descriptors and tells the device.
func (f *fuzzer) offer(d []byte) {
	q := f.rand.IntN(4)
	page := f.ram[q]
	sizes := []uint32{0, 1, 12, 16, 512, 4096, 1 << 20, 1<<32 - 1}
	for i := range queueSize {
		desc := page[16*i:]
		binary.NativeEndian.PutUint64(desc, f.wild())
		binary.NativeEndian.PutUint32(desc[8:], sizes[f.rand.IntN(len(sizes))])
		binary.NativeEndian.PutUint16(desc[12:], uint16(f.rand.IntN(8))) // next, write, indirect
		binary.NativeEndian.PutUint16(desc[14:], uint16(f.rand.IntN(queueSize+2)))
	}
	avail := page[availAt:]
	for i := range queueSize {
		binary.NativeEndian.PutUint16(avail[4+2*i:], uint16(f.rand.IntN(queueSize+2)))
	}
	step := uint16(1 + f.rand.IntN(queueSize))
	if f.rand.IntN(16) == 0 {
		step = uint16(f.rand.Uint32())
	}
	binary.NativeEndian.PutUint16(avail[2:], binary.NativeEndian.Uint16(avail[2:])+step)
	// Pages of descriptors that others point to, and headers of requests.
	for i := 4; i < pages; i++ {
		binary.NativeEndian.PutUint64(f.ram[i][f.rand.IntN(4088):], f.rand.Uint64()&0xff)
	}
	f.set(d, regQueueNotify, uint32(q))
}
