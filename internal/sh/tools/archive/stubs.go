package archive

import "github.com/carrel-dev/carrel/internal/sh/tool"

func cpioMain(c *tool.Call) int { return 2 }
