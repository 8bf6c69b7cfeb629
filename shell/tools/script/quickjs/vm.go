package quickjs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// Value is a value of a script. The VM that returned it owns it. The arguments of a [Func] are
// valid during the call.
type Value uint32

// Func is a function that scripts can call. Its result is converted to a value: nil, bool, int,
// float64, string, []byte (an ArrayBuffer), []any, map[string]any or Value. An error that is a
// [Thrown] is thrown unchanged. For any other error, its text is thrown.
type Func func(vm *VM, args []Value) (any, error)

// Thrown is an exception of a script.
type Thrown struct {
	Value Value
	Text  string // what it says
}

// Error implements error.
func (t *Thrown) Error() string { return t.Text }

// ErrEnded is the error of a VM that was ended from outside: it has no steps left, or its context
// has ended.
var ErrEnded = errors.New("interrupted")

// ErrNested is the error of host functions and scripts that call each other too deeply.
var ErrNested = errors.New("too many nested calls")

// Options are the options of a VM.
type Options struct {
	// Step pays for n steps of work, and reports whether to go on.
	Step func(n int) bool
	// Grow is called before memory grows by n bytes. When it returns false, the script gets an out
	// of memory error.
	Grow func(n int64) bool
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Random fills b; nil leaves zeros.
	Random func(b []byte)
	// Funcs are the functions named in the image, by name. Calling a missing one throws an error.
	Funcs map[string]Func
	// Normalize returns the absolute name for an imported name, and Load returns a module's source.
	// With nil there are no modules.
	Normalize func(vm *VM, base, name string) (string, error)
	Load      func(vm *VM, name string) (string, error)
	// Rejected is called when a promise is rejected without a handler. It is called with handled
	// when such a promise gets a handler later.
	Rejected func(vm *VM, promise, reason Value, handled bool)
}

// VM is one interpreter. Only one goroutine at a time may use it.
type VM struct {
	o      Options
	ctx    context.Context // for small calls: it has the values of the context, but does not end
	life   context.Context // with its end
	module api.Module
	mem    api.Memory
	depth  int
	ended  bool
	sets   []*[fnCount]api.Function
}

// maxDepth is the deepest nesting of calls between host functions and scripts.
const maxDepth = 48

// stackSize is the part of its stack that the interpreter may use. The stack itself is larger.
const stackSize = 900 << 10

// The functions of the interpreter that this package calls.
const (
	fnMalloc = iota
	fnFree
	fnEval
	fnCall
	fnJob
	fnJobPending
	fnException
	fnThrow
	fnNewError
	fnDup
	fnFreeValue
	fnIsException
	fnIsString
	fnIsNumber
	fnIsBool
	fnIsNull
	fnIsUndefined
	fnIsFunction
	fnIsPromise
	fnIsProxy
	fnIsArrayBuffer
	fnBool
	fnFloat
	fnString
	fnFreeCString
	fnBuffer
	fnNewString
	fnNewNumber
	fnNewObject
	fnNewArray
	fnNewBuffer
	fnUndefined
	fnNull
	fnTrue
	fnFalse
	fnGlobal
	fnGet
	fnSet
	fnSetIndex
	fnNewFunction
	fnPromiseState
	fnPromiseResult
	fnProxyTarget
	fnGetIndex
	fnCount
)

var fnNames = [fnCount]string{"wasm_malloc", "wasm_free", "qjs_eval", "qjs_call", "qjs_execute_pending_job", "qjs_is_job_pending", "qjs_get_exception",
	"qjs_throw", "qjs_new_error", "qjs_dup_value", "qjs_free_value", "qjs_is_exception", "qjs_is_string", "qjs_is_number", "qjs_is_bool", "qjs_is_null",
	"qjs_is_undefined", "qjs_is_function", "qjs_is_promise", "qjs_is_proxy", "qjs_is_array_buffer", "qjs_get_bool", "qjs_get_float64", "qjs_get_string_len",
	"qjs_free_cstring", "qjs_get_array_buffer", "qjs_new_string", "qjs_new_number", "qjs_new_object", "qjs_new_array", "qjs_new_array_buffer",
	"qjs_get_undefined", "qjs_get_null", "qjs_get_true", "qjs_get_false", "qjs_get_global", "qjs_get_prop_string", "qjs_set_prop_string",
	"qjs_set_prop_uint32", "qjs_new_host_function", "qjs_promise_state", "qjs_promise_result", "qjs_get_proxy_target", "qjs_get_prop_uint32"}

// open makes an interpreter with empty memory.
func open(ctx context.Context, o Options) (*VM, error) {
	e := engine()
	if e.err != nil {
		return nil, fmt.Errorf("quickjs: %w", e.err)
	}
	v := &VM{o: o}
	v.life = context.WithValue(ctx, key{}, v)
	v.ctx = context.WithoutCancel(v.life)
	mem := &memory{grow: o.Grow}
	alloc := experimental.MemoryAllocatorFunc(func(_, _ uint64) experimental.LinearMemory { return mem })
	var err error
	v.module, err = e.runtime.InstantiateModule(experimental.WithMemoryAllocator(v.ctx, alloc), e.code,
		wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return nil, fmt.Errorf("quickjs: %w", err)
	}
	v.mem = v.module.Memory()
	return v, nil
}

// Close frees the interpreter.
func (v *VM) Close() error { return v.module.Close(context.Background()) }

func (v *VM) now() time.Time {
	if v.o.Now == nil {
		return time.Now()
	}
	return v.o.Now()
}

func (v *VM) random(b []byte) {
	if v.o.Random != nil {
		v.o.Random(b)
	}
}

// call calls a function of the interpreter that doesn't run scripts.
func (v *VM) call(fn int, args ...uint64) uint64 {
	var stack [8]uint64
	n := copy(stack[:], args)
	if err := v.fn(fn).CallWithStack(v.ctx, stack[:max(n, 1)]); err != nil {
		v.ended = true
		return 0
	}
	if fn == fnFloat {
		return stack[0]
	}
	return uint64(uint32(stack[0])) // the upper half is not always written
}

// run calls a function of the interpreter that may run scripts.
func (v *VM) run(fn int, args ...uint64) (Value, error) {
	if v.ended || v.life.Err() != nil {
		return 0, ErrEnded
	}
	if v.depth > maxDepth {
		return 0, ErrNested
	}
	f := v.fn(fn)
	v.depth++
	defer func() { v.depth-- }()
	var stack [8]uint64
	n := copy(stack[:], args)
	if err := f.CallWithStack(v.life, stack[:max(n, 1)]); err != nil {
		over := v.ended || v.life.Err() != nil || errors.Is(err, ErrEnded)
		if v.ended = true; over {
			return 0, ErrEnded
		}
		return 0, fmt.Errorf("the interpreter failed: %s", firstLine(err.Error()))
	}
	if v.ended {
		return 0, ErrEnded
	}
	return Value(uint32(stack[0])), nil
}

// fn returns a function of the interpreter for this depth. A function in a call can't be called
// again, so each depth has its own.
func (v *VM) fn(fn int) api.Function {
	for len(v.sets) <= v.depth {
		v.sets = append(v.sets, new([fnCount]api.Function))
	}
	f := v.sets[v.depth][fn]
	if f == nil {
		f = v.module.ExportedFunction(fnNames[fn])
		v.sets[v.depth][fn] = f
	}
	return f
}

func firstLine(s string) string { s, _, _ = strings.Cut(s, "\n"); return s }

// interrupt is called by running scripts every few thousand operations.
func (v *VM) interrupt() int32 {
	if v.ended || v.life.Err() != nil {
		v.ended = true
		return 1
	}
	return 0
}

// End ends the VM from within a host function. Neither the function nor the script returns.
func End() { panic(ErrEnded) }

// Pending reports whether promise jobs are waiting.
func (v *VM) Pending() bool { return v.call(fnJobPending) != 0 }

// tick pays for a batch of the interpreter's loops. When it can't, the interpreter stops at this
// point for good.
func (v *VM) tick() {
	const steps = batch / 50 // a round is about two nanoseconds
	if v.ended || v.life.Err() != nil || v.o.Step != nil && !v.o.Step(steps) {
		v.ended = true
		panic(ErrEnded)
	}
}

// result converts a value that is an exception to an error.
func (v *VM) result(r Value, err error) (Value, error) {
	if err != nil || v.call(fnIsException, uint64(r)) == 0 {
		return r, err
	}
	if v.ended {
		return 0, ErrEnded
	}
	return 0, v.exception()
}

// exception returns and clears the pending exception.
func (v *VM) exception() error {
	e := Value(v.call(fnException))
	t := &Thrown{Value: e}
	if v.call(fnIsString, uint64(e)) != 0 {
		t.Text = v.String(e)
	} else if m := v.Get(e, "message"); m != 0 {
		t.Text = v.String(m)
	}
	return t
}

// Eval modes.
const (
	Script = 0
	Module = 1
	Strict = 8
	Async  = 128 // top-level await; the value is a promise
)

// Eval runs source text.
func (v *VM) Eval(source, file string, mode int) (Value, error) {
	code, ok := v.put(source)
	if !ok {
		return 0, errMemory
	}
	name, ok := v.put(file)
	if !ok {
		return 0, errMemory
	}
	r, err := v.result(v.run(fnEval, code, uint64(len(source)), name, uint64(mode)))
	v.call(fnFree, code)
	v.call(fnFree, name)
	return r, err
}

var errMemory = errors.New("out of memory")

// Call calls a function without a this.
func (v *VM) Call(f Value, args ...Value) (Value, error) {
	argv := uint64(0)
	if len(args) > 0 {
		if argv = v.call(fnMalloc, uint64(4*len(args))); argv == 0 {
			return 0, errMemory
		}
		for i, a := range args {
			v.mem.WriteUint32Le(uint32(argv)+uint32(4*i), uint32(a))
		}
	}
	r, err := v.result(v.run(fnCall, uint64(f), v.call(fnUndefined), uint64(len(args)), argv))
	if argv != 0 {
		v.call(fnFree, argv)
	}
	return r, err
}

// Jobs runs the waiting promise jobs until none is left.
func (v *VM) Jobs() error {
	for v.call(fnJobPending) != 0 {
		r, err := v.run(fnJob)
		if err != nil {
			return err
		}
		if int32(r) < 0 {
			if v.ended {
				return ErrEnded
			}
			return v.exception()
		}
	}
	return nil
}

// put writes a text and a NUL after it.
func (v *VM) put(s string) (uint64, bool) {
	at := v.call(fnMalloc, uint64(len(s)+1))
	if at == 0 || !v.mem.WriteString(uint32(at), s) || !v.mem.WriteByte(uint32(at)+uint32(len(s)), 0) {
		return 0, false
	}
	return at, true
}

// cstring reads a text up to its NUL.
func (v *VM) cstring(at uint32) string {
	const most = 1 << 16
	size := min(most, v.mem.Size()-min(at, v.mem.Size()))
	b, _ := v.mem.Read(at, size)
	if end := bytes.IndexByte(b, 0); end >= 0 {
		b = b[:end]
	}
	return string(b)
}
