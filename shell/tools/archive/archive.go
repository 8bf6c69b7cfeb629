// Package archive has archives and compression: tar, cpio, ar, zip, gzip, bzip2, xz, zstd and lz4.
//
// # Threats
//
// All archives are hostile. What they make is on the simulated disk, within its user's rights and quota, so the worst that
// names with "..", links and headers can do is what any command of that user could; names are still refused as GNU's tools
// refuse them. What a small archive unpacks to is bounded by the disk's quota and the process's memory, and ends with
// their messages; decoders get their windows limited, and everything read is paid for. The libraries behind this
// package import os for conveniences of their own (opening archives by name); nothing here calls those.
package archive

import (
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
)

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	all := map[string]tool.Command{
		"tar": tarMain, "cpio": cpioMain, "ar": arMain, "zip": zipMain, "unzip": unzipMain, "zipinfo": zipinfoMain,
		"gzip": compressor("gzip"), "gunzip": compressor("gzip"), "zcat": compressor("gzip"),
		"bzip2": compressor("bzip2"), "bunzip2": compressor("bzip2"), "bzcat": compressor("bzip2"),
		"xz": compressor("xz"), "unxz": compressor("xz"), "xzcat": compressor("xz"), "lzma": compressor("xz"), "unlzma": compressor("xz"),
		"zstd": compressor("zstd"), "unzstd": compressor("zstd"), "zstdcat": compressor("zstd"),
		"lz4": compressor("lz4"), "unlz4": compressor("lz4"), "lz4cat": compressor("lz4"),
		"zgrep": zgrep, "zegrep": zgrep, "zfgrep": zgrep, "bzgrep": zgrep, "xzgrep": zgrep, "zdiff": zdiff, "zcmp": zdiff, "zless": zless, "zmore": zless,
	}
	for name, run := range all {
		all[name] = withHelp(run)
	}
	return all
}

// withHelp answers --help and --version.
func withHelp(run tool.Command) tool.Command {
	return func(c *tool.Call) int {
		for _, a := range c.Args {
			switch a {
			case "--":
				return run(c)
			case "--help":
				_, _ = c.Out.Write([]byte("Usage: " + c.Base() + " [OPTION]... [FILE]...\n"))
				return 0
			case "--version":
				_, _ = c.Out.Write([]byte(c.Base() + " (Carrel) 1.0, after the program of that name\n"))
				return 0
			}
			if !strings.HasPrefix(a, "-") && strings.HasPrefix(c.Base(), "z") && strings.Contains(c.Base(), "grep") {
				break
			}
		}
		return run(c)
	}
}
