package interp

import (
	"bufio"
	"io"
)

// coproc is a command at both ends of a two-way pipe.
type coproc struct {
	w       *bufio.Writer
	to      io.WriteCloser // nil when it is closed
	from    io.ReadCloser
	scanner *bufio.Scanner
	wait    func() int
}

// both returns the command of a two-way pipe, which is started if need be.
func (p *interp) both(name string) (*coproc, error) {
	if c := p.coprocs[name]; c != nil {
		return c, nil
	}
	p.flushOutputAndError()
	_ = p.flushAll()
	r, w, wait, err := p.host.Both(name)
	if err != nil {
		return nil, newError("cannot open two way pipe `%s' for input/output: %s", name, p.host.ErrText(err))
	}
	c := &coproc{w: bufio.NewWriterSize(w, 4096), to: w, from: r, wait: wait}
	c.scanner = p.newScanner(r, make([]byte, inputBufSize))
	if p.coprocs == nil {
		p.coprocs = map[string]*coproc{}
	}
	p.coprocs[name] = c
	return c, nil
}

// getlineBoth reads a record from a two-way pipe.
func (p *interp) getlineBoth(name string) (float64, string, error) {
	c, err := p.both(name)
	if err != nil {
		return -1, "", err
	}
	if c.to != nil {
		_ = c.w.Flush() // what fails here fails there
	}
	if c.from == nil || !c.scanner.Scan() {
		if c.from == nil || c.scanner.Err() != nil {
			return -1, "", nil
		}
		return 0, "", nil
	}
	return 1, c.scanner.Text(), nil
}

// closeBoth closes one end of a two-way pipe, "to" or "from", or both, and returns the command's status once both are.
func (p *interp) closeBoth(name, end string) int {
	c := p.coprocs[name]
	if c == nil {
		return -1
	}
	if end != "from" && c.to != nil {
		_ = c.w.Flush() // nobody reads it then
		_ = c.to.Close()
		c.to = nil
	}
	if end != "to" && c.from != nil {
		_ = c.from.Close() // it was read
		c.from = nil
	}
	if c.to != nil || c.from != nil {
		return 0
	}
	delete(p.coprocs, name)
	return c.wait()
}
