package seccomp

import (
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// run interprets a compiled filter. The interpreter is made for packets, which are in network byte
// order.
func run(t testing.TB, vm *bpf.VM, mark uint32, n uint32, args [6]uint64) uint32 {
	t.Helper()
	p := make([]byte, 64)
	put := func(at int, v uint32) {
		p[at], p[at+1], p[at+2], p[at+3] = byte(v>>24), byte(v>>16), byte(v>>8), byte(v)
	}
	put(offNumber, n)
	put(offArch, mark)
	for i, a := range args {
		put(offArgs+8*i, uint32(a))
		put(offArgs+8*i+4, uint32(a>>32))
	}
	v, err := vm.Run(p)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(v)
}

func machine(t testing.TB, f Filter) (*bpf.VM, int) {
	t.Helper()
	code, _ := compile(f)
	var raw []bpf.Instruction
	for _, in := range code {
		raw = append(raw, bpf.RawInstruction{Op: in.Code, Jt: in.Jt, Jf: in.Jf, K: in.K}.Disassemble())
	}
	vm, err := bpf.NewVM(raw)
	if err != nil {
		t.Fatalf("%v\n%v", err, raw)
	}
	return vm, len(code)
}

// want returns the kernel's action for a verdict of the filter.
func want(v verdict) uint32 {
	switch {
	case v.told:
		return notify
	case v.errno != 0:
		return fail(v.errno)
	}
	return allow
}

// values are arguments that matter to some rule.
var values = []uint64{0, 1, 2, 3, 5, 8, 10, 16, 17, 29, 31, 38, 40, 0x80, 0x801, 0x80002, 0x5412, 0x541c, 0x5423, 0x4b49, 0x40, 6, 132, 262, 0x20000000, 0x200, 0x241,
	0x10000000, 0x20000, 0x02000000, 0x40000000, 0x7e020000, 0x1200011, 0xffffffff, 0xffffffffffffffff, 0xffffffff00000001}

func randomFilter(r *rand.Rand) Filter {
	b := func() bool { return r.IntN(2) == 0 }
	f := Filter{Watch: b(), Namespaces: b(), UnixDatagram: b(), Unix: b(), TTY: b(), Personality: b(), Setuid: b(), TCP: b(), Network: r.IntN(4) == 0,
		WatchConnect: b(), WatchBind: b(), WatchWrites: b(), WatchRemoves: b()}
	if b() {
		f.Sockets = []int{}
		for range r.IntN(6) {
			f.Sockets = append(f.Sockets, []int{1, 2, 10, 16, 17, 40, 38, 2, 16}[r.IntN(9)])
		}
	}
	if b() {
		f.Deny = Dangerous()
	}
	for range r.IntN(4) {
		d := Deny{Watch: b(), Errno: []syscall.Errno{0, unix.ENOSYS, unix.EACCES}[r.IntN(3)]}
		for range r.IntN(200) {
			d.Calls = append(d.Calls, names[byName[r.IntN(len(byName))]])
		}
		f.Deny = append(f.Deny, d)
	}
	return f
}

// checkFilter compares the program for f with the meaning of f in Go, for every number and for
// random arguments.
func checkFilter(t *testing.T, f Filter, r *rand.Rand, rounds int) {
	t.Helper()
	vm, size := machine(t, f)
	if size > 2000 {
		t.Errorf("%d instructions", size)
	}
	m := read(f)
	try := func(n uint32, args [6]uint64) {
		if got, want := run(t, vm, arch, n, args), want(m.verdict(int(int32(n)), args)); got != want {
			t.Fatalf("%+v\ncall %d %x: the program says %#x, the filter %#x", f, n, args, got, want)
		}
	}
	argument := func() uint64 {
		v := values[r.IntN(len(values))]
		if r.IntN(4) == 0 {
			v |= values[r.IntN(len(values))]
		}
		if r.IntN(4) == 0 {
			v |= uint64(r.Uint32()) << 32
		}
		return v
	}
	for n := range uint32(len(names) + 20) {
		try(n, [6]uint64{argument(), argument(), argument()})
	}
	by := []string{"socket", "socketpair", "socket", "sendto", "sendmsg", "sendmmsg", "clone", "clone3", "unshare", "setns", "ioctl", "openat", "open", "openat2", "personality", "connect"}
	for range rounds {
		if n, ok := number(by[r.IntN(len(by))]); ok {
			try(uint32(n), [6]uint64{argument(), argument(), argument(), argument()})
		}
	}
	for _, n := range []uint32{x32, x32 | 1, 0xffffffff, 0x80000000, x32 - 1} {
		try(n, [6]uint64{})
	}
	for _, mark := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, 0, ^uint32(0)} {
		if got := run(t, vm, mark, 0, [6]uint64{}); got != fail(unix.ENOSYS) {
			t.Fatalf("architecture %#x: %#x", mark, got)
		}
	}
}

func TestProgramMeansTheFilter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		checkFilter(t, randomFilter(r), r, 400)
	}
	checkFilter(t, Filter{}, r, 10)
}

func FuzzProgram(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		r := rand.New(rand.NewPCG(a, b))
		checkFilter(t, randomFilter(r), r, 100)
	})
}

// TestQuickForCommonCalls checks that the number alone decides the most common calls, so that the
// kernel remembers them.
func TestQuickForCommonCalls(t *testing.T) {
	vm, size := machine(t, full())
	if size > 300 {
		t.Errorf("%d instructions", size)
	}
	for _, name := range []string{"read", "write", "close", "newfstatat", "mmap", "futex", "epoll_pwait", "getdents64", "execve", "execveat", "wait4", "memfd_create", "readv", "prctl"} {
		n, ok := number(name)
		if !ok {
			t.Fatal(name)
		}
		for range 3 {
			if got := run(t, vm, arch, uint32(n), [6]uint64{rand.Uint64(), rand.Uint64(), rand.Uint64()}); got != allow {
				t.Errorf("%s: %#x", name, got)
			}
		}
	}
}

// full is a filter as of a box.
func full() Filter {
	return Filter{Deny: Dangerous(), Watch: true, Namespaces: true, UnixDatagram: true, Sockets: DefaultSockets(), TTY: true, Personality: true, Setuid: true, TCP: true,
		WatchConnect: true, WatchBind: true, WatchWrites: true, WatchRemoves: true}
}

func TestNames(t *testing.T) {
	if !slices.IsSortedFunc(byName[:], func(a, b uint16) int { return strings.Compare(names[a], names[b]) }) {
		t.Error("byName is not sorted")
	}
	for n, name := range names {
		if got, ok := number(name); name != "" && (!ok || got != n) {
			t.Errorf("%s is %d, found %d", name, n, got)
		}
	}
	if _, ok := number(""); ok {
		t.Error("a call without a name")
	}
	// A name that no architecture has must be a typing error.
	elsewhere := []string{"create_module", "query_module", "get_kernel_syms", "modify_ldt", "iopl", "ioperm", "uselib", "_sysctl", "sysfs", "ustat",
		"open", "creat", "mkdir", "mknod", "unlink", "rmdir", "rename", "link", "symlink", "chmod", "chown", "lchown", "utime", "utimes", "futimesat", "renameat"}
	for _, name := range slices.Concat(dangerous, writers, removers) {
		if _, ok := number(name); !ok && !slices.Contains(elsewhere, name) {
			t.Errorf("no call has the name %q", name)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	f := full()
	for b.Loop() {
		compile(f)
	}
}
