package interp

// Front returns the terminal's foreground process group.
func (t *TTY) Front() int { return t.group() }
