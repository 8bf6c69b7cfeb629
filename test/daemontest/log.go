package daemontest

// Log is what the daemon has written so far.
func (d *Daemon) Log() string { return d.log.String() }
