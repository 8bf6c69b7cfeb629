package gvisor

import (
	"crypto/rand"
	"fmt"
	"reflect"
	"sync/atomic"
	"unsafe"

	gcontext "gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// gVisor draws the boot ID once, when it makes /proc, and saves it with the kernel. So a fork had
// its parent's boot ID, and a program would take the parent's locks and journals for its own. A
// restored sentry therefore draws another ID before the first program runs, unless the sandbox
// resumes after a pause.

// bootIDFile is the file in which programs read the boot ID.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// drawsBootID says that this sentry must still draw a boot ID.
var drawsBootID atomic.Bool

// newBoot, after the value of pagesArg, asks the sentry for a new boot ID.
const newBoot = "boot"

// drawBootID draws a boot ID. A task that is about to run calls it, and other tasks wait until it
// is done.
func (p *sandboxPlatform) drawBootID(ctx gcontext.Context) {
	if !drawsBootID.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t := kernel.TaskFromContext(ctx)
	if t == nil || !drawsBootID.Load() {
		return
	}
	if data := bootIDOf(t); data != nil {
		*data = bootID()
	}
	drawsBootID.Store(false)
}

// bootID returns a random UUID in the form of the file.
func bootID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x\n", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// bootIDOf returns the text that gVisor serves as the file, or nil if gVisor keeps it in a form
// that we don't know.
func bootIDOf(t *kernel.Task) *string {
	ns := t.GetMountNamespace()
	if ns == nil {
		return nil
	}
	ctx := t.Kernel().SupervisorContext()
	defer ns.DecRef(ctx)
	root := ns.Root(ctx)
	if !root.Ok() {
		return nil
	}
	defer root.DecRef(ctx)
	creds := auth.NewRootCredentials(t.Kernel().RootUserNamespace())
	vd, err := t.Kernel().VFS().GetDentryAt(ctx, creds, &vfs.PathOperation{Root: root, Start: root, Path: fspath.Parse(bootIDFile)}, &vfs.GetDentryOptions{})
	if err != nil {
		return nil
	}
	defer vd.DecRef(ctx)
	d, ok := vd.Dentry().Impl().(*kernfs.Dentry)
	if !ok {
		return nil
	}
	return staticText(d.Inode())
}

// staticText returns the text of one of gVisor's files with a fixed text, or nil if inode is
// another file.
func staticText(inode any) *string {
	v := reflect.ValueOf(inode)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil
	}
	f := v.Elem().FieldByName("StaticData")
	if !f.IsValid() || f.Type() != reflect.TypeFor[vfs.StaticData]() {
		return nil
	}
	return &(*vfs.StaticData)(unsafe.Pointer(f.UnsafeAddr())).Data
}
