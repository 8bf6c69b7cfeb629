package quickjs

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tetratelabs/wazero/api"
)

// Image is an interpreter that has run its prelude. VMs are copies of it.
type Image struct {
	funcs  []string
	file   string
	source string
	once   sync.Once
	err    error
	memory []byte
	stack  uint64
	result Value
	rt, cx uint64
}

// NewImage describes an image. The prelude is a script whose value is a function. It is called with
// an object that has the functions in funcs. Nothing runs before the first Start.
func NewImage(funcs []string, file, prelude string) *Image {
	return &Image{funcs: slices.Clone(funcs), file: file, source: prelude}
}

// build runs the prelude and stores the memory.
func (m *Image) build() error {
	v, err := open(context.Background(), Options{})
	if err != nil {
		return err
	}
	defer v.Close()
	for _, step := range []struct {
		name string
		args []uint64
	}{{"_initialize", nil}, {"qjs_init", nil}, {"qjs_set_interrupt_handler", []uint64{1}}, {"qjs_set_promise_rejection_handler", []uint64{1}},
		{"qjs_set_module_loader", []uint64{1}}, {"qjs_set_max_stack_size", []uint64{stackSize}}} {
		if _, err := v.module.ExportedFunction(step.name).Call(v.ctx, step.args...); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	host, err := v.owned(v.call(fnNewObject))
	if err != nil {
		return err
	}
	for _, name := range m.funcs {
		at, _ := v.put(name)
		f := Value(v.call(fnNewFunction, at, uint64(len(name)), 0))
		v.call(fnFree, at)
		if err := v.Set(host, name, f); err != nil {
			return err
		}
		v.Free(f)
	}
	main, err := v.Eval(m.source, m.file, Script)
	if err == nil {
		m.result, err = v.Call(main, host)
	}
	if err != nil {
		return v.explain(err)
	}
	if err := v.Jobs(); err != nil {
		return v.explain(err)
	}
	b, _ := v.mem.Read(0, v.mem.Size())
	m.memory = slices.Clone(b)
	m.stack = v.module.ExportedGlobal("__stack_pointer").Get()
	for name, to := range map[string]*uint64{"qjs_get_runtime_ptr": &m.rt, "qjs_get_context_ptr": &m.cx} {
		r, err := v.module.ExportedFunction(name).Call(v.ctx)
		if err != nil {
			return err
		}
		*to = r[0]
	}
	return nil
}

// explain adds the script's stack to a script's error.
func (v *VM) explain(err error) error {
	if t, ok := err.(*Thrown); ok {
		if s := v.Get(t.Value, "stack"); s != 0 {
			return fmt.Errorf("%w\n%s", err, v.String(s))
		}
	}
	return err
}

// Start makes a VM. It lives until ctx ends or it is closed.
func (m *Image) Start(ctx context.Context, o Options) (*VM, error) {
	if m.once.Do(func() { m.err = m.build() }); m.err != nil {
		return nil, fmt.Errorf("quickjs: the prelude: %w", m.err)
	}
	v, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	if have := v.mem.Size(); have < uint32(len(m.memory)) {
		if _, ok := v.mem.Grow((uint32(len(m.memory)) - have + page - 1) / page); !ok {
			v.Close()
			return nil, errMemory
		}
	}
	v.mem.Write(0, m.memory)
	v.module.ExportedGlobal("__stack_pointer").(api.MutableGlobal).Set(m.stack)
	if _, err := v.module.ExportedFunction("qjs_set_runtime_and_context").Call(v.ctx, m.rt, m.cx); err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

// Size returns the initial memory of a VM of the image in bytes, or 0 before the first Start.
func (m *Image) Size() int { return len(m.memory) }

// Result returns the value that the prelude's function returned. It is valid in every VM of the
// image.
func (m *Image) Result() Value { return m.result }
