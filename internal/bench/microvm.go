package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
)

// machineBench is the measurement of sandboxes in virtual machines.
type machineBench struct {
	*daemon
	o    Options
	rows []row
}

// benchMicroVM measures sandboxes in virtual machines, with hardware or by emulation as the host has
// it. The peer is QEMU as it comes, with the same kernel.
func benchMicroVM(ctx context.Context, s *session) ([]row, error) {
	if s.o.MicroVMKernel == "" {
		return nil, &carrel.Error{Op: "bench", Kind: carrel.Invalid, Field: "microvm-kernel",
			Err: errors.New("no kernel for virtual machines is given"), Hint: "carrel bench microvm --microvm-kernel DIR"}
	}
	dir, err := s.scratch()
	if err != nil {
		return nil, err
	}
	traffic := &wireBench{o: s.o, program: filepath.Join(dir, "traffic")}
	if traffic.program, err = build(ctx, traffic.program, "traffic"); err != nil {
		return nil, err
	}
	if traffic.peer, err = startWirePeer(ctx, traffic.program); err != nil {
		return nil, err
	}
	defer traffic.peer.stop()
	table, err := json.Marshal(wireTable())
	if err != nil {
		return nil, err
	}
	tableFile := filepath.Join(dir, "machines.json")
	if err := os.WriteFile(tableFile, table, 0o600); err != nil {
		return nil, err
	}
	d, err := startDaemon(ctx, s.o, "--warm", "0", "--default-cpus", "1", "--microvm-kernel", s.o.MicroVMKernel, "--wire-table", tableFile)
	if err != nil {
		return nil, err
	}
	defer d.stop()
	d.tier = carrel.MicroVM
	b := &machineBench{daemon: d, o: s.o}
	for _, measure := range []func(context.Context) error{b.boots, b.ownStart, b.holders, b.crowd,
		func(ctx context.Context) error { return b.network(ctx, traffic) }, b.underLoad} {
		if err := measure(ctx); err != nil {
			return b.rows, err
		}
	}
	return b.rows, nil
}

// machine describes a small sandbox.
func (b *machineBench) machine(template string) carrel.CreateOptions {
	opts := base(carrel.MicroVM)
	opts.Template, opts.Limits.MemoryMB = template, 256
	return opts
}

// The templates. One that has a start command and no ready command is not started ahead: its sandboxes
// boot. The base can be a stand-in, which is not started ahead either.
const (
	booting = "bench-boots"
	ahead   = "bench-ahead"
)

// boots measures sandboxes that boot, in turns with the peer.
func (b *machineBench) boots(ctx context.Context) error {
	for _, name := range []string{booting, ahead} {
		if err := b.makeTemplate(ctx, name, "FROM template://base\nRUN true\n"); err != nil {
			return err
		}
	}
	if _, err := b.svc.UpdateTemplate(ctx, booting, carrel.TemplateUpdate{Start: &[]string{"/bin/true"}}); err != nil {
		return err
	}
	ours := b.starting("boot", b.machine(booting), nil)
	peer := &runner{name: "stock QEMU", once: b.stockQEMU}
	err := race(ctx, 1, b.o.samples(20), ours, peer)
	b.rows = append(b.rows, fewer("microvm: boot → first command's output", "ms", ours.times, 1900).key("microvm.boot"),
		summarise("stock QEMU, the same kernel: start → first program's output", "ms", peer.times).key("microvm.boot.qemu"),
		ratio("  boot ÷ stock QEMU", ours.times, peer.times).key("microvm.boot.ratio"))
	return err
}

// stockQEMU boots QEMU's usual machine with the kernel and the initrd of our machines, and waits for
// the line of the first program.
func (b *machineBench) stockQEMU(ctx context.Context) (time.Duration, error) {
	initrds, err := filepath.Glob(filepath.Join(b.dir, "run", "microvm", "initrd-*"))
	if err == nil && len(initrds) == 0 {
		err = errors.New("the daemon has no initrd: it made no machine yet")
	}
	if err != nil {
		return 0, err
	}
	order, err := boot.Order{Trial: true}.Encode()
	if err != nil {
		return 0, err
	}
	kernel := filepath.Join(b.o.MicroVMKernel, "vmlinuz")
	if _, err := os.Stat(kernel); err != nil {
		kernel = filepath.Join(b.o.MicroVMKernel, "vmlinux")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-m", "256", "-nographic", "-no-reboot", "-net", "none",
		"-kernel", kernel, "-initrd", initrds[0], "-append", "console=ttyS0 quiet panic=-1 "+order)
	began := time.Now()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 0, err
	}
	var took time.Duration
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), boot.Works) {
			took = time.Since(began)
			break
		}
	}
	_ = cmd.Process.Kill()
	err = cmd.Wait()
	if took == 0 {
		return 0, fmt.Errorf("stock QEMU does not boot: %w", err)
	}
	return took, nil
}

// startTime bounds the time until a template has been started ahead. ownStartWait is the rest between
// two looks.
const (
	startTime    = 5 * time.Minute
	ownStartWait = 20 * time.Second
)

// ownStart measures sandboxes that go on from their template's own start.
func (b *machineBench) ownStart(ctx context.Context) error {
	for began := time.Now(); ; {
		sb, err := b.svc.Create(ctx, b.machine(ahead))
		if err != nil {
			return err
		}
		if err := b.svc.Kill(ctx, sb.ID); err != nil {
			return err
		}
		if sb.Generation > 0 {
			break
		}
		if time.Since(began) > startTime {
			return errors.New("the template was not started ahead")
		}
		if err := sleep(ctx, ownStartWait); err != nil { // it begins when the machine has time to spare
			return err
		}
	}
	var made []float64
	ours := b.starting("own start", b.machine(ahead), &made)
	ours.gap = createGap
	err := race(ctx, 1, b.o.samples(20), ours)
	b.rows = append(b.rows, fewer("microvm: create from the template's own start", "ms", made, 250).key("microvm.create"),
		summarise("microvm:   → first command's output", "ms", ours.times).key("microvm.create.echo"))
	return err
}

// holders measures pauses, resumes and forks of a sandbox that holds 50 MB.
func (b *machineBench) holders(ctx context.Context) error {
	pause, resume, err := b.pauses(ctx, 50, b.o.samples(20))
	if err != nil {
		return err
	}
	forks, err := b.oneByOne(ctx, b.o.samples(20))
	b.rows = append(b.rows, fewer("microvm: pause, 50 MB held", "ms", pause, 250).key("microvm.pause"),
		fewer("microvm: resume → first command's output, 50 MB held", "ms", resume, 250).key("microvm.resume"),
		fewer("microvm: fork → first command's output, 50 MB held", "ms", forks, 250).key("microvm.fork"))
	return err
}

// oneByOne measures n forks of one sandbox, one after the other, each until its first command has
// answered.
func (d *daemon) oneByOne(ctx context.Context, n int) (times []float64, err error) {
	id, _, err := d.holding(ctx, 50)
	if err != nil {
		return nil, err
	}
	defer d.svc.Kill(ctx, id)
	for i := range n + 1 {
		start := time.Now()
		forks, err := d.svc.Fork(ctx, id, carrel.ForkOptions{Count: 1, Timeout: time.Hour})
		if err == nil {
			err = forks[0].Err
		}
		if err != nil {
			return nil, err
		}
		c, err := d.svc.Computer(ctx, forks[0].Sandbox.ID)
		if err == nil {
			err = echo(ctx, c)
		}
		if i > 0 {
			times = append(times, ms(time.Since(start)))
		}
		if err = errors.Join(err, d.svc.Kill(ctx, forks[0].Sandbox.ID)); err != nil {
			return nil, err
		}
	}
	return times, nil
}

// Of the crowd of forks.
const (
	crowdSize = 20
	crowdRest = 20 * time.Second // before their memory is read
)

// crowd makes forks that stay idle, asks each whether it lives, and reads their VMMs' memory. Memory
// that several share counts in parts.
func (b *machineBench) crowd(ctx context.Context) error {
	sb, err := b.svc.Create(ctx, b.machine(ahead))
	if err != nil {
		return err
	}
	defer b.svc.Kill(ctx, sb.ID)
	forks, err := b.svc.Fork(ctx, sb.ID, carrel.ForkOptions{Count: crowdSize, Timeout: time.Hour})
	if err != nil {
		return err
	}
	var ids []carrel.ID
	defer func() { b.killAll(ctx, ids) }()
	for _, f := range forks {
		if f.Err != nil {
			return f.Err
		}
		ids = append(ids, f.Sandbox.ID)
	}
	if err := sleep(ctx, crowdRest); err != nil {
		return err
	}
	var held []float64
	for _, id := range ids {
		mb, err := vmmMemory(id)
		if err != nil {
			return err
		}
		held = append(held, mb)
	}
	alive := 0
	for _, id := range ids {
		c, err := b.svc.Computer(ctx, id)
		if err == nil {
			err = echo(ctx, c)
		}
		if err == nil {
			alive++
		}
	}
	b.rows = append(b.rows, fewer(fmt.Sprintf("microvm: memory of each of %d idle forks", crowdSize), "MB", held, 50).key("microvm.idle"),
		atLeast(single(fmt.Sprintf("microvm: of %d forks live", crowdSize), "", float64(alive)), crowdSize).key("microvm.alive"))
	return nil
}

// vmmMemory is the proportional memory of a sandbox's VMM.
func vmmMemory(id carrel.ID) (mb float64, err error) {
	pids, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, p := range pids {
		args, err := os.ReadFile(filepath.Join("/proc", p.Name(), "cmdline"))
		if err != nil || !strings.Contains(string(args), "/"+string(id)+"\x00") || !strings.Contains(string(args), "qemu-system-") {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", p.Name(), "smaps_rollup"))
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, "Pss:"); ok {
				kb, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
				return kb / 1024, err
			}
		}
	}
	return 0, fmt.Errorf("sandbox %s has no machine", id)
}

// network measures one stream in each direction.
func (b *machineBench) network(ctx context.Context, traffic *wireBench) error {
	opts := b.machine(ahead)
	opts.Network = carrel.Network{Internet: true}
	boxes, err := traffic.sandboxes(ctx, b.daemon, 1, opts)
	if err != nil {
		return err
	}
	defer b.svc.Kill(ctx, boxes.ids[0])
	const size = 64 << 20
	for _, way := range []struct {
		name, mode, key string
		port            int
	}{{"out of", "flood", "out", traffic.peer.Sink}, {"into", "drain", "in", traffic.peer.Source}} {
		var got []float64
		for range max(3, b.o.samples(10)) {
			gbit, err := gigabits(ctx, place{"a machine", boxes.run}, way.mode, way.port, size)
			if err != nil {
				return err
			}
			got = append(got, gbit*1000/8)
		}
		b.rows = append(b.rows, more("microvm: one stream "+way.name+" a machine", "MB/s", got, 40).key("microvm.wire."+way.key))
	}
	return nil
}

// underLoad boots machines while the processors have more to do than they can.
func (b *machineBench) underLoad(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var busy sync.WaitGroup
	defer busy.Wait()
	defer cancel()
	for range 4 {
		busy.Go(func() {
			for ctx.Err() == nil {
			}
		})
	}
	n := b.o.samples(200)
	ours := b.starting("boot under load", b.machine(booting), nil)
	booted := 0
	var errs []error
	for range n {
		took, err := ours.once(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		booted++
		ours.times = append(ours.times, ms(took))
	}
	b.rows = append(b.rows, atLeast(single(fmt.Sprintf("microvm: of %d boots under load worked", n), "", float64(booted)), float64(n)).key("microvm.load"),
		summarise("microvm: boot → first command's output, under load", "ms", ours.times).key("microvm.load.boot"))
	return errors.Join(errs...)
}
