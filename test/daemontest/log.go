package daemontest

// Log returns the daemon's output so far.
func (d *Daemon) Log() string { return d.log.String() }
