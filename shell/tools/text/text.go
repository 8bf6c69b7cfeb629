// Package text has programs for text in lines: head, sort, cut, tr, … and for bytes: od, base64, the checksums.
//
// Texts are bytes; where GNU's programs know characters (wc -m, expr length) these are UTF-8's. Every program works in one
// pass with buffers of its own where it can; those that must have everything (sort, tac, shuf, …) pay for it and give it
// back when they end.
package text

import (
	"maps"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/calc"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

const files = "[OPTION]... [FILE]..."

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	all := usage.Commands(map[string]usage.Program{
		"cat":      {Run: cat, Args: files, What: "Concatenate FILE(s) to standard output."},
		"tac":      {Run: tac, Args: files, What: "Write each FILE to standard output, last line first."},
		"rev":      {Run: rev, Args: "[FILE]...", What: "Reverse the characters of every line."},
		"nl":       {Run: nl, Args: files, What: "Write each FILE to standard output, with line numbers added."},
		"head":     {Run: head, Args: files, What: "Print the first 10 lines of each FILE to standard output."},
		"tail":     {Run: tail, Args: files, What: "Print the last 10 lines of each FILE to standard output."},
		"wc":       {Run: wc, Args: files, What: "Print newline, word, and byte counts for each FILE."},
		"tee":      {Run: tee, Args: files, What: "Copy standard input to each FILE, and also to standard output."},
		"sort":     {Run: sortCommand, Args: files, What: "Write sorted concatenation of all FILE(s) to standard output."},
		"uniq":     {Run: uniq, Args: "[OPTION]... [INPUT [OUTPUT]]", What: "Filter adjacent matching lines from INPUT, writing to OUTPUT."},
		"cut":      {Run: cut, Args: "OPTION... [FILE]...", What: "Print selected parts of lines from each FILE to standard output."},
		"tr":       {Run: tr, Args: "[OPTION]... STRING1 [STRING2]", What: "Translate, squeeze, and/or delete characters from standard input."},
		"paste":    {Run: paste, Args: files, What: "Merge lines of files."},
		"join":     {Run: join, Args: "[OPTION]... FILE1 FILE2", What: "Join lines of two sorted files on a common field."},
		"comm":     {Run: comm, Args: "[OPTION]... FILE1 FILE2", What: "Compare sorted files FILE1 and FILE2 line by line."},
		"fold":     {Run: fold, Args: files, What: "Wrap input lines in each FILE, writing to standard output."},
		"fmt":      {Run: fmtCommand, Args: "[-WIDTH] [OPTION]... [FILE]...", What: "Reformat each paragraph in the FILE(s), writing to standard output."},
		"expand":   {Run: expand, Args: files, What: "Convert tabs in each FILE to spaces, writing to standard output."},
		"unexpand": {Run: unexpand, Args: files, What: "Convert blanks in each FILE to tabs, writing to standard output."},
		"column":   {Run: column, Args: "[options] [<file>...]", What: "Columnate lists."},
		"seq":      {Run: seq, Args: "[OPTION]... [FIRST [INCREMENT]] LAST", What: "Print numbers from FIRST to LAST, in steps of INCREMENT."},
		"expr":     {Run: expr, Args: "EXPRESSION", What: "Print the value of EXPRESSION to standard output.", Leading: true},
		"base64":   {Run: baseCommand("base64"), Args: "[OPTION]... [FILE]", What: "Base64 encode or decode FILE, or standard input, to standard output."},
		"base32":   {Run: baseCommand("base32"), Args: "[OPTION]... [FILE]", What: "Base32 encode or decode FILE, or standard input, to standard output."},
		"basenc":   {Run: baseCommand(""), Args: "[OPTION]... [FILE]", What: "Encode or decode FILE, or standard input, to standard output."},
		"cksum":    {Run: cksum, Args: files, What: "Print or verify checksums."},
		"sum":      {Run: sum, Args: files, What: "Print checksum and block counts for each FILE."},
		"od":       {Run: od, Args: files, What: "Write an unambiguous representation, octal bytes by default, of FILE to standard output."},
		"xxd":      {Run: xxd, Args: "[options] [infile [outfile]]", What: "Make a hexdump or do the reverse."},
		"numfmt":   {Run: numfmt, Args: "[OPTION]... [NUMBER]...", What: "Reformat NUMBER(s), or the numbers from standard input."},
		"iconv":    {Run: iconv, Args: "[OPTION...] [FILE...]", What: "Convert encoding of given files from one encoding to another."},
		"hexdump":  {Run: hexdump, Args: "[options] <file>...", What: "Display file contents in hexadecimal, decimal, octal, or ascii."},
		"hd":       {Run: func(c *tool.Call) int { c.Args = append([]string{"-C"}, c.Args...); return hexdump(c) }, Args: "[options] <file>...", What: "Display file contents in hexadecimal and ascii."},
		"split":    {Run: split, Args: "[OPTION]... [FILE [PREFIX]]", What: "Output pieces of FILE to PREFIXaa, PREFIXab, ..."},
		"csplit":   {Run: csplit, Args: "[OPTION]... FILE PATTERN...", What: "Output pieces of FILE separated by PATTERN(s) to files 'xx00', 'xx01', ..."},
		"shuf":     {Run: shuf, Args: "[OPTION]... [FILE]", What: "Write a random permutation of the input lines to standard output."},
		"tsort":    {Run: tsort, Args: "[OPTION] [FILE]", What: "Write totally ordered list consistent with the partial ordering in FILE."},
		"factor":   {Run: factor, Args: "[OPTION] [NUMBER]...", What: "Print the prime factors of each NUMBER."},
		"strings":  {Run: stringsCommand, Args: "[option(s)] [file(s)]", What: "Display printable strings in file(s)."},
		"dos2unix": {Run: convertLines(false), Args: "[options] [file ...] [-n infile outfile ...]", What: "Convert line ends from DOS to Unix."},
		"unix2dos": {Run: convertLines(true), Args: "[options] [file ...] [-n infile outfile ...]", What: "Convert line ends from Unix to DOS."},
		"look":     {Run: look, Args: "[options] <string> [<file>...]", What: "Display lines beginning with a specified string."},
		"colrm":    {Run: colrm, Args: "[startcol [endcol]]", What: "Filter out the specified columns."},
		"envsubst": {Run: envsubst, Args: "[OPTION] [SHELL-FORMAT]", What: "Substitute the values of environment variables."},
		"sponge":   {Run: sponge, Args: "[-a] <file>", What: "Soak up all input from stdin and write it to <file>."},
		"ts":       {Run: ts, Args: "[-r] [-i | -s] [-m] [format]", What: "Put the time in front of each line."},
		"pv":       {Run: pv, Args: "[OPTION] [FILE]...", What: "Concatenate FILE(s) to standard output."},
		"yes":      {Run: yes, Args: "[STRING]...", What: "Repeatedly output a line with all specified STRING(s), or 'y'.", Leading: true},
	})
	for name := range digests {
		all[name] = usage.Commands(map[string]usage.Program{name: {Run: digest(name), Args: files, What: "Print or check " + digests[name].tag + " checksums."}})[name]
	}
	maps.Copy(all, calc.Commands())
	return all
}
