package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// disk is an ext4 filesystem in a file, mounted by a loop device.
type disk struct {
	t     *trial
	image string
	loop  string // the loop device
	at    string // where it is mounted
}

// newDisk makes and mounts a filesystem of so many MiB, with these extra arguments of mkfs.ext4.
func (t *trial) newDisk(size int, extra ...string) *disk {
	if os.Geteuid() != 0 {
		t.skip("only root can mount a disk")
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.skip("mkfs.ext4 is not here")
	}
	k := &disk{t: t, image: filepath.Join(t.dir, "disk.img"), at: filepath.Join(t.dir, "disk")}
	t.check(os.Mkdir(k.at, 0o755))
	t.check(os.WriteFile(k.image, nil, 0o600))
	t.check(os.Truncate(k.image, int64(size)<<20))
	t.command("mkfs.ext4", append(extra, "-q", "-F", "-m", "0", k.image)...)
	out, err := exec.Command("losetup", "-f", "--show", k.image).CombinedOutput()
	if err != nil {
		t.skip(fmt.Sprintf("no loop device: %s", out))
	}
	k.loop = strings.TrimSpace(string(out))
	t.later(func() { k.unmount(); _ = exec.Command("losetup", "-d", k.loop).Run() })
	t.command("mount", k.loop, k.at)
	return k
}

// command runs a program of the suite's own.
func (t *trial) command(name string, args ...string) {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.giveUp("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// unmount ends the trial's own processes on the disk, and unmounts it.
func (k *disk) unmount() {
	k.t.killAllOf(k.at)
	err := testenv.Within(k.t.tb.Context(), 20*time.Second,
		func() error { return unix.Unmount(k.at, 0) })
	if err != nil {
		k.t.note("unmount: %v", err)
		_ = unix.Unmount(k.at, unix.MNT_DETACH)
	}
}

// Numbers of ext4's ioctl EXT4_IOC_SHUTDOWN, in linux/fs/ext4/ext4.h.
const (
	ext4Shutdown   = 0x8004587d
	ext4NoLogFlush = 2
)

// cut cuts the power: from now on nothing reaches the disk, also no data that waits in memory. The
// daemon lives a moment longer, and its answers from now on don't count. Ext4 lets an fsync that is
// under way succeed although it drops the data: fsync finds its transaction ended, and does not see
// that it was aborted. With real power such an answer would never have come.
func (k *disk) cut() {
	f, err := os.Open(k.at)
	k.t.check(err)
	defer f.Close()
	k.t.dark.Store(true)
	if err := unix.IoctlSetPointerInt(int(f.Fd()), ext4Shutdown, ext4NoLogFlush); err != nil {
		k.t.skip("this kernel can't shut a filesystem down: " + err.Error())
	}
}

// boot mounts what is on the disk after a cut, on the same device.
func (k *disk) boot() {
	k.unmount()
	k.t.command("mount", k.loop, k.at)
	if err := os.WriteFile(filepath.Join(k.at, "boot"), nil, 0o600); err != nil {
		k.t.skip("something keeps the disk busy: " + err.Error())
	}
}

// powerTrial cuts the power of a machine under load. All that ran is gone. All that was paused or
// kept must be there.
func powerTrial(t *trial) {
	k := t.newDisk(1024)
	d := t.serve(setup{dir: filepath.Join(k.at, "data")})
	t.populate(d)
	for range rounds(2) {
		t.underLoad(d, 30, func() {
			k.cut()
			t.lull(200)
			d.kill9()
		})
		k.t.dark.Store(false)
		k.boot()
		if err := d.start(); err != nil {
			t.fatalf("it does not start after a power cut: %v", err)
		}
		t.verify(d.svc, allowed{running: true, sims: true})
		if len(t.violations) > 0 {
			return
		}
	}
	t.finish(d)
}

// fullTrial fills the disk under a daemon, kills the daemon and starts it again on the full disk,
// then makes room. Nothing acknowledged is lost.
func fullTrial(t *trial) {
	k := t.newDisk(700)
	t.full(k, func() (free func()) {
		name := filepath.Join(k.at, "ballast")
		var st unix.Statfs_t
		t.check(unix.Statfs(k.at, &st))
		f, err := os.Create(name)
		t.check(err)
		defer f.Close()
		for size := int64(st.Bavail) * st.Bsize; size >= 4096; size /= 2 { // it takes all in a few steps
			for unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, fileEnd(f), size) == nil {
				t.check(f.Truncate(fileEnd(f) + size))
			}
		}
		return func() { t.check(os.Remove(name)) }
	})
}

func fileEnd(f *os.File) int64 {
	fi, err := f.Stat()
	if err != nil {
		return 0
	}
	return fi.Size()
}

// inodesTrial uses up the inodes instead.
func inodesTrial(t *trial) {
	k := t.newDisk(1024, "-N", "800")
	t.full(k, func() (free func()) {
		dir := filepath.Join(k.at, "ballast")
		t.check(os.Mkdir(dir, 0o700))
		for i := 0; ; i++ {
			if os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0o600) != nil {
				break
			}
		}
		return func() { t.check(os.RemoveAll(dir)) }
	})
}

// full runs the steps that all full disks share. fill takes all room, and returns how to free it.
func (t *trial) full(k *disk, fill func() (free func())) {
	d := t.serve(setup{dir: filepath.Join(k.at, "data")})
	t.populate(d)
	t.calm.Store(false)
	free := fill()
	t.faults++
	stop := t.work(d, 2)
	t.busy(10 + t.rng.IntN(20))
	stop()
	if t.rng.IntN(2) == 0 {
		d.kill9()
	} else {
		d.terminate()
	}
	t.faults++
	if err := d.start(); err != nil {
		t.violate("it does not start on a full disk: %v", err)
		free()
		if err := d.start(); err != nil {
			t.fatalf("nor when there is room again: %v", err)
		}
	} else {
		t.killOne(d)
		free()
	}
	t.verify(d.svc, afterKill)
	t.finish(d)
}

// killOne kills one sandbox on a full disk: this must be possible, because it is the way out.
func (t *trial) killOne(d *server) {
	for _, b := range t.j.alive() {
		if b.doubt != none || b.tier == carrel.Sim {
			continue
		}
		if err := d.svc.Kill(t.ctx, b.id); err != nil {
			t.violate("kill %s on a full disk: %v", b.id, err)
			b.doubt = inKill
		} else {
			b.dead = true
		}
		return
	}
}
