package search

import "github.com/carrel-dev/carrel/internal/sh/tool"

func rgMain(c *tool.Call) int { return 2 }
