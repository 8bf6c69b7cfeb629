package gvisor

// BeginBlanks has the driver start its blank sentries now, as Sweep does.
func (d *Driver) BeginBlanks() { d.blanks.begin() }
