package interp

// toolShell is bash: a new shell in a new process.
func toolShell(c *call) int {
	run, err := parseShellArgs(append([]string{c.name}, c.args...))
	if err != nil {
		c.r.writeErr("bash: " + err.Error() + "\n")
		return 2
	}
	run.env = c.env
	return c.r.spawnShell(run)
}
