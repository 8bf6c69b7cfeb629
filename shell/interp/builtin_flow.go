package interp

import (
	"strconv"
	"strings"
)

func biExit(c *call) int {
	r := c.r
	status := r.status
	if len(r.running) > 0 && len(c.args) == 0 && r.running[len(r.running)-1] == trapEXIT {
		status = r.exitStatus
	}
	args := c.args
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) > 0 {
		n, err := strconv.ParseInt(strings.TrimSpace(args[0]), 10, 64)
		switch {
		case err != nil:
			c.fail(2, "%s: numeric argument required", args[0])
			n = 2
		case len(args) > 1:
			c.fail(1, "too many arguments")
			if r.interactive {
				return 1
			}
			n = 1
		}
		status = int(n & 0xff)
	}
	if r.term != nil && !r.warned && r.warnStopped() {
		r.warned = true
		return 1
	}
	r.flow, r.status, r.exiting = flowExit, status, true
	return status
}

func biLogout(c *call) int {
	if !c.r.opts.loginShell {
		return c.fail(1, "not login shell: use `exit'")
	}
	return biExit(c)
}

func biReturn(c *call) int {
	r := c.r
	status := r.status
	args := c.args
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) > 0 {
		n, err := strconv.ParseInt(strings.TrimSpace(args[0]), 10, 64)
		switch {
		case err != nil:
			r.errorf("return: %s: numeric argument required", args[0])
			n = 2
		case len(args) > 1:
			return c.fail(1, "too many arguments")
		}
		status = int(n & 0xff)
	}
	if n := len(r.running); len(args) == 0 && n > 0 && r.running[n-1] > 0 && r.running[n-1] <= 64 && r.trapCalls == len(r.calls) {
		status = r.trapStatus
	}
	if len(r.calls) == 0 {
		if len(args) > 0 && status == 2 && args[0] != "2" {
			return 2
		}
		return c.fail(2, "can only `return' from a function or sourced script")
	}
	r.beforeReturn = r.status
	r.flow, r.status = flowReturn, status
	return status
}

func biBreak(c *call) int {
	r := c.r
	args := c.args
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if r.loops == 0 {
		r.errorf("%s: only meaningful in a `for', `while', or `until' loop", c.name)
		return 0
	}
	n := 1
	if len(args) > 0 {
		v, err := strconv.Atoi(strings.TrimSpace(args[0]))
		if err != nil {
			r.errorf("%s: %s: numeric argument required", c.name, args[0])
			r.abort(128)
			return 128
		}
		if len(args) > 1 {
			r.errorf("%s: too many arguments", c.name)
			r.discardHard()
			return 1
		}
		if v < 1 {
			r.errorf("%s: %s: loop count out of range", c.name, args[0])
			r.flow, r.flowCount, r.status = flowBreak, r.loops, 1
			return 1
		}
		n = v
	}
	r.flow, r.flowCount = flowBreak, min(n, r.loops)
	if c.name == "continue" {
		r.flow = flowContinue
	}
	r.status = 0
	return 0
}

func biShift(c *call) int {
	r := c.r
	args := c.args
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	n := 1
	if len(args) > 1 {
		return c.fail(1, "too many arguments")
	}
	if len(args) > 0 {
		v, err := strconv.Atoi(strings.TrimSpace(args[0]))
		if err != nil {
			return c.fail(1, "%s: numeric argument required", args[0])
		}
		if v < 0 {
			return c.fail(1, "%s: shift count out of range", args[0])
		}
		n = v
	}
	if n > len(r.params) {
		if r.opts.shiftVerbose {
			c.fail(1, "%d: shift count out of range", n)
		}
		return 1
	}
	r.params = r.params[n:]
	return 0
}
