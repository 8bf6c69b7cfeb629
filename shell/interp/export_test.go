package interp

// Front is the process group in front of the terminal.
func (t *TTY) Front() int { return t.group() }
