package files

import "github.com/carrel-dev/carrel/internal/sh/tool"

func sdiff(c *tool.Call) int { return 2 }
func diff3(c *tool.Call) int { return 2 }
func rsync(c *tool.Call) int { return 2 }
