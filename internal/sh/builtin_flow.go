package sh

import (
	"strconv"
)

func biExit(c *call) int {
	status := c.r.status
	if len(c.args) > 0 {
		n, err := strconv.Atoi(c.args[0])
		if err != nil {
			c.r.errorf("%s: %s: numeric argument required", c.name, c.args[0])
			n = 2
		}
		status = n & 0xff
	}
	c.r.flow, c.r.status, c.r.exiting = flowExit, status, true
	return status
}

func biReturn(c *call) int {
	status := c.r.status
	if len(c.args) > 0 {
		n, err := strconv.Atoi(c.args[0])
		if err != nil {
			c.r.errorf("return: %s: numeric argument required", c.args[0])
			n = 2
		}
		status = n & 0xff
	}
	if len(c.r.calls) == 0 {
		return c.fail(1, "can only `return' from a function or sourced script")
	}
	c.r.flow, c.r.status = flowReturn, status
	return status
}

func biBreak(c *call) int {
	n := 1
	if len(c.args) > 0 {
		v, err := strconv.Atoi(c.args[0])
		if err != nil {
			c.r.errorf("%s: %s: numeric argument required", c.name, c.args[0])
			c.r.abort(128)
			return 128
		}
		if v < 1 {
			return c.fail(1, "%s: loop count out of range", c.args[0])
		}
		n = v
	}
	if c.r.loops == 0 {
		c.r.errorf("%s: only meaningful in a `for', `while', or `until' loop", c.name)
		return 0
	}
	c.r.flow, c.r.flowCount = flowBreak, min(n, c.r.loops)
	if c.name == "continue" {
		c.r.flow = flowContinue
	}
	c.r.status = 0
	return 0
}

func biShift(c *call) int {
	n := 1
	if len(c.args) > 0 {
		v, err := strconv.Atoi(c.args[0])
		if err != nil || v < 0 {
			return c.fail(1, "%s: numeric argument required", c.args[0])
		}
		n = v
	}
	if n > len(c.r.params) {
		return 1
	}
	c.r.params = c.r.params[n:]
	return 0
}
