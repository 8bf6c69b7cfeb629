package data

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/data/jq"
)

// inputs returns a function that returns the next input, from all files in turn.
func (r *jqRun) inputs() func() (any, error) {
	files := r.files
	if len(files) == 0 {
		files = []string{"-"}
	}
	var in io.ReadCloser
	open := func() (bool, error) {
		for in == nil {
			if len(files) == 0 {
				return false, nil
			}
			name := files[0]
			files = files[1:]
			f, err := r.OpenIn(name)
			if err != nil {
				r.Errorf(2, "error: Could not open %s: %s", name, tool.ErrText(err))
				r.fail = 2
				continue
			}
			if r.file = name; len(r.files) == 0 {
				r.file = ""
			}
			in = f
			r.decoder = jq.NewDecoder(f, r.budget())
		}
		return true, nil
	}
	shut := func() { _ = in.Close(); in = nil } // it was read
	switch {
	case r.raw:
		return r.rawInputs(open, &in, shut)
	case r.stream:
		return r.streamInputs(open, shut)
	}
	one := func() (any, error) {
		for {
			if ok, err := open(); !ok {
				if err == nil {
					err = io.EOF
				}
				return nil, err
			}
			v, err := r.decoder.Next()
			if err != io.EOF {
				return v, err
			}
			shut()
		}
	}
	if !r.slurp {
		return one
	}
	done := false
	return func() (any, error) {
		if done {
			return nil, io.EOF
		}
		done = true
		all := []any{}
		for {
			v, err := one()
			if err == io.EOF {
				return all, r.Pay(int64(len(all)) * 16)
			}
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
	}
}

// streamInputs returns a function that returns the events of the inputs.
func (r *jqRun) streamInputs(open func() (bool, error), shut func()) func() (any, error) {
	var events []any
	return func() (any, error) {
		for len(events) == 0 {
			ok, err := open()
			if !ok {
				if err == nil {
					err = io.EOF
				}
				return nil, err
			}
			v, err := r.decoder.Next()
			if err == io.EOF {
				shut()
				continue
			}
			if err == nil {
				err = jq.Stream(v, r.budget(), func(e any) error { events = append(events, e); return r.Pay(64) })
			}
			if err != nil {
				return nil, err
			}
			if err := r.Pay(-64 * int64(len(events))); err != nil {
				return nil, err
			}
		}
		e := events[0]
		events = events[1:]
		return e, nil
	}
}

// rawInputs returns a function that returns lines, or with -s the whole text.
func (r *jqRun) rawInputs(open func() (bool, error), in *io.ReadCloser, shut func()) func() (any, error) {
	var text []byte
	var line []byte
	done := false
	buf := make([]byte, 32<<10)
	fill := func() (bool, error) {
		for {
			if ok, err := open(); !ok {
				return false, err
			}
			n, err := (*in).Read(buf)
			if n > 0 {
				if !r.Step(1 + n>>8) {
					return false, jq.ErrStop
				}
				text = append(text, buf[:n]...)
			}
			if err == io.EOF {
				shut()
			} else if err != nil {
				return false, err
			}
			if n > 0 {
				return true, nil
			}
		}
	}
	if r.slurp {
		return func() (any, error) {
			if done {
				return nil, io.EOF
			}
			done = true
			for {
				before := len(text)
				more, err := fill()
				if err == nil {
					err = r.Pay(int64(len(text) - before))
				}
				if err != nil {
					return nil, err
				}
				if !more {
					return strings.ToValidUTF8(string(text), "\ufffd"), nil
				}
			}
		}
	}
	return func() (any, error) {
		for {
			if i := bytes.IndexByte(text, '\n'); i >= 0 {
				s := string(append(line, text[:i]...))
				line, text = line[:0], text[i+1:]
				return strings.ToValidUTF8(s, "\ufffd"), nil
			}
			line = append(line, text...)
			text = text[:0]
			if err := r.Pay(int64(0)); err != nil || len(line) > tool.MaxLine {
				return nil, errors.New("line too long")
			}
			more, err := fill()
			if err != nil {
				return nil, err
			}
			if !more && len(text) == 0 {
				if len(line) == 0 {
					return nil, io.EOF
				}
				s := string(line)
				line = nil
				return strings.ToValidUTF8(s, "\ufffd"), nil
			}
		}
	}
}
