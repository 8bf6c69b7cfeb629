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

// gVisor draws the name of the boot once, when it makes /proc, and the name is saved with the
// kernel. So a fork had its parent's, and what a program keeps by it (locks, journals) would be
// taken for the program's own. A restored sentry draws another one before the first program goes
// on, unless the sandbox goes on where it was paused.

// bootIDFile is where programs read it.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// drawsBootID: this sentry has still to draw one.
var drawsBootID atomic.Bool

// newBoot, behind what pagesArg says, asks for it.
const newBoot = "boot"

// drawBootID draws it, by a task that is about to run. Whoever comes meanwhile waits.
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

// bootID is a random UUID, as the file has it.
func bootID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x\n", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// bootIDOf is what the file is made of when it is read; nil if gVisor keeps it in another form than
// we know.
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

// staticText is the text of a file of gVisor's that always has the same; nil if inode is none.
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
