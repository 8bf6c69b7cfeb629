// Package archive has archives and compression: tar, cpio, ar, zip, gzip, bzip2, xz, zstd and lz4.
//
// # Threats
//
// All archives are hostile. Extracted files are on the simulated disk, within the rights and the
// quota of its user. So names with "..", links and headers can do no more than any command of that
// user could. Such names are still refused, as GNU's tools refuse them. The disk's quota and the
// process's memory bound the unpacked size of a small archive, and end the unpacking with their
// messages. The windows of decoders are limited, and everything read is paid for. The libraries
// behind this package import os for convenience functions (opening archives by name). Nothing here
// calls those.
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

// withHelp adds --help and --version to a program.
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
