package archive

import "github.com/carrel-dev/carrel/internal/sh/tool"

func zipMain(c *tool.Call) int     { return 2 }
func unzipMain(c *tool.Call) int   { return 2 }
func zipinfoMain(c *tool.Call) int { return 2 }
func cpioMain(c *tool.Call) int    { return 2 }
