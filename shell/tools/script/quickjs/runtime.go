package quickjs

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/carrel-dev/carrel/shell/tools/script/meter"
)

// page is WebAssembly's page size.
const page = 64 << 10

// maxPages is the most memory of any interpreter, even if its maker allows more: 512 MB.
const maxPages = 8192

// compiled is the interpreter as machine code. It is compiled once per process.
type compiled struct {
	runtime wazero.Runtime
	code    wazero.CompiledModule
	err     error
}

// batch is the number of loop rounds that are paid for at once: some hundred microseconds.
const batch = 50_000

// key is the context key of a VM.
type key struct{}

// vmOf returns the VM that called a host function.
func vmOf(ctx context.Context) *VM { return ctx.Value(key{}).(*VM) }

var engine = sync.OnceValue(func() compiled {
	code, err := binaryCode()
	if err != nil {
		return compiled{err: err}
	}
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithMemoryLimitPages(maxPages))
	c := compiled{runtime: r}
	env := r.NewHostModuleBuilder("env")
	i32 := api.ValueTypeI32
	def := func(b wazero.HostModuleBuilder, name string, params, results int, fn api.GoModuleFunc) {
		kinds := []api.ValueType{i32, i32, i32, i32, i32}
		b.NewFunctionBuilder().WithGoModuleFunction(fn, kinds[:params], kinds[:results]).Export(name)
	}
	def(env, "host_get_timezone_offset", 2, 1, func(_ context.Context, _ api.Module, s []uint64) { s[0] = 0 })
	def(env, "host_interrupt", 0, 1, func(ctx context.Context, _ api.Module, s []uint64) { s[0] = uint64(vmOf(ctx).interrupt()) })
	def(env, "host_promise_rejection", 3, 0, func(ctx context.Context, _ api.Module, s []uint64) {
		vmOf(ctx).rejection(Value(s[0]), Value(s[1]), uint32(s[2]) != 0)
	})
	def(env, "host_module_normalize", 2, 1, func(ctx context.Context, _ api.Module, s []uint64) {
		s[0] = uint64(vmOf(ctx).normalize(uint32(s[0]), uint32(s[1])))
	})
	def(env, "host_module_load", 2, 1, func(ctx context.Context, _ api.Module, s []uint64) {
		s[0] = uint64(vmOf(ctx).load(uint32(s[0]), uint32(s[1])))
	})
	def(env, "host_call", 5, 1, func(ctx context.Context, _ api.Module, s []uint64) {
		s[0] = uint64(vmOf(ctx).hostCall(uint32(s[0]), uint32(s[1]), uint32(s[3]), uint32(s[4])))
	})
	if _, c.err = env.Instantiate(ctx); c.err != nil {
		return c
	}
	wasi := r.NewHostModuleBuilder("wasi_snapshot_preview1")
	const badf = 8 // EBADF: there are no descriptors
	wasi.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, m api.Module, s []uint64) {
		m.Memory().WriteUint64Le(uint32(s[2]), uint64(vmOf(ctx).now().UnixNano()))
		s[0] = 0
	}), []api.ValueType{i32, api.ValueTypeI64, i32}, []api.ValueType{i32}).Export("clock_time_get")
	wasi.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, _ api.Module, s []uint64) { s[0] = badf }),
		[]api.ValueType{i32, api.ValueTypeI64, i32, i32}, []api.ValueType{i32}).Export("fd_seek")
	def(wasi, "fd_close", 1, 1, func(_ context.Context, _ api.Module, s []uint64) { s[0] = badf })
	def(wasi, "fd_fdstat_get", 2, 1, func(_ context.Context, _ api.Module, s []uint64) { s[0] = badf })
	def(wasi, "fd_write", 4, 1, func(_ context.Context, _ api.Module, s []uint64) { s[0] = badf })
	def(wasi, "random_get", 2, 1, func(ctx context.Context, m api.Module, s []uint64) {
		if b, ok := m.Memory().Read(uint32(s[0]), uint32(s[1])); ok {
			vmOf(ctx).random(b)
		}
		s[0] = 0
	})
	if _, c.err = wasi.Instantiate(ctx); c.err != nil {
		return c
	}
	ticks := r.NewHostModuleBuilder(meter.Module)
	def(ticks, meter.Name, 0, 0, func(ctx context.Context, _ api.Module, _ []uint64) { vmOf(ctx).tick() })
	if _, c.err = ticks.Instantiate(ctx); c.err != nil {
		return c
	}
	var metered []byte
	if metered, c.err = meter.Instrument(code, batch); c.err == nil {
		c.code, c.err = r.CompileModule(ctx, metered)
	}
	return c
})

// memory is the linear memory of one VM. It grows as far as grow allows.
type memory struct {
	buf  []byte
	grow func(n int64) bool
}

// Reallocate implements experimental.LinearMemory.
func (m *memory) Reallocate(size uint64) []byte {
	old := uint64(len(m.buf))
	if size <= old {
		return m.buf[:size]
	}
	if m.grow != nil && !m.grow(int64(size-old)) {
		return nil
	}
	if size > uint64(cap(m.buf)) {
		next := make([]byte, size, max(size, old+old/4))
		copy(next, m.buf)
		m.buf = next
	}
	m.buf = m.buf[:size]
	return m.buf
}

// Free implements experimental.LinearMemory.
func (m *memory) Free() {}

// u32 reads a number from a VM's memory. It returns 0 outside of it.
func (v *VM) u32(at uint32) uint32 {
	b, ok := v.mem.Read(at, 4)
	if !ok {
		return 0
	}
	return binary.LittleEndian.Uint32(b)
}
