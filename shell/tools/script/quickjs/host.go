package quickjs

import "errors"

// hostCall answers a script's call of a function. A result of 0 is an exception, which is then
// pending.
func (v *VM) hostCall(name, size, argc, argv uint32) Value {
	if v.ended || v.life.Err() != nil {
		v.ended = true
		return v.throw(ErrEnded)
	}
	b, _ := v.mem.Read(name, size)
	fn := v.o.Funcs[string(b)]
	if fn == nil {
		return v.throw(errors.New("not available here"))
	}
	const most = 64
	var args [8]Value
	list := args[:0]
	for i := range min(argc, most) {
		list = append(list, Value(v.u32(argv+4*i)))
	}
	r, err := fn(v, list)
	if err == nil {
		var x Value
		if x, err = v.New(r); err == nil {
			return x
		}
	}
	return v.throw(err)
}

// throw makes an error the pending exception.
func (v *VM) throw(err error) Value {
	var t *Thrown
	if errors.As(err, &t) && t.Value != 0 {
		v.call(fnThrow, uint64(t.Value))
		return 0
	}
	if x, nerr := v.New(err.Error()); nerr == nil {
		v.call(fnThrow, uint64(x))
		v.Free(x)
	}
	return 0
}

// normalize answers the module loader with a name. The loader frees the name. A result of 0 is an
// exception.
func (v *VM) normalize(base, name uint32) uint32 {
	if v.o.Normalize == nil {
		v.throw(errors.New("there are no modules here"))
		return 0
	}
	s, err := v.o.Normalize(v, v.cstring(base), v.cstring(name))
	if err != nil {
		v.throw(err)
		return 0
	}
	at, ok := v.put(s)
	if !ok {
		v.throw(errMemory)
		return 0
	}
	return uint32(at)
}

// load answers the module loader with a module's source.
func (v *VM) load(name, sizeOut uint32) uint32 {
	if v.o.Load == nil {
		v.throw(errors.New("there are no modules here"))
		return 0
	}
	s, err := v.o.Load(v, v.cstring(name))
	if err != nil {
		v.throw(err)
		return 0
	}
	at, ok := v.put(s)
	if !ok {
		v.throw(errMemory)
		return 0
	}
	v.mem.WriteUint32Le(sizeOut, uint32(len(s)))
	return uint32(at)
}

// rejection reports that a promise was rejected without a handler, or got a handler later.
func (v *VM) rejection(promise, reason Value, handled bool) {
	if v.o.Rejected != nil && !v.ended {
		v.o.Rejected(v, promise, reason, handled)
	}
	v.Free(promise)
	v.Free(reason)
}
