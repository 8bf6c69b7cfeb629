// Package text has programs for text in lines: head, sort, cut, tr, … and for bytes: od, base64,
// the checksums.
//
// Texts are bytes. Where GNU's programs count characters (wc -m, expr length), characters are
// UTF-8. A program works in one pass with its own buffers if possible. A program that needs all
// data (sort, tac, shuf, …) pays for the memory, and gives it back when it ends.
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
		"cat":      {Run: cat, Args: files, What: "Prints files, one after the other."},
		"tac":      {Run: tac, Args: files, What: "Prints the lines of files from the last to the first."},
		"rev":      {Run: rev, Args: "[FILE]...", What: "Turns each line round, so that its last character comes first."},
		"nl":       {Run: nl, Args: files, What: "Puts a number before the lines of files."},
		"head":     {Run: head, Args: files, What: "Shows how files begin: ten lines, if no option asks for more or less."},
		"tail":     {Run: tail, Args: files, What: "Shows how files end: ten lines, if no option asks for more or less."},
		"wc":       {Run: wc, Args: files, What: "Counts the lines, words and bytes of files."},
		"tee":      {Run: tee, Args: files, What: "Passes its input on and keeps a copy of it in files."},
		"sort":     {Run: sortCommand, Args: files, What: "Puts the lines of all its files in order."},
		"uniq":     {Run: uniq, Args: "[OPTION]... [INPUT [OUTPUT]]", What: "Keeps one of several equal lines that follow each other."},
		"cut":      {Run: cut, Args: "OPTION... [FILE]...", What: "Takes some bytes, characters or fields out of each line."},
		"tr":       {Run: tr, Args: "[OPTION]... STRING1 [STRING2]", What: "Replaces, drops or merges characters of its input."},
		"paste":    {Run: paste, Args: files, What: "Puts lines of several files side by side, or a file's lines in a row."},
		"join":     {Run: join, Args: "[OPTION]... FILE1 FILE2", What: "Pairs the lines of two sorted files that have the same key."},
		"comm":     {Run: comm, Args: "[OPTION]... FILE1 FILE2", What: "Tells the lines of two sorted files apart: in the first, in the second, in both."},
		"fold":     {Run: fold, Args: files, What: "Breaks lines that are too long."},
		"fmt":      {Run: fmtCommand, Args: "[-WIDTH] [OPTION]... [FILE]...", What: "Fills paragraphs anew so that their lines are about equally long."},
		"expand":   {Run: expand, Args: files, What: "Replaces tabs with as many spaces as reach the next stop."},
		"unexpand": {Run: unexpand, Args: files, What: "Replaces spaces that reach a tab stop with tabs."},
		"column":   {Run: column, Args: "[options] [<file>...]", What: "Sets words or fields in columns."},
		"seq":      {Run: seq, Args: "[OPTION]... [FIRST [INCREMENT]] LAST", What: "Counts: one number a line, up or down."},
		"expr":     {Run: expr, Args: "EXPRESSION", What: "Works out an expression of numbers, comparisons and patterns; each operand is an argument.", Leading: true},
		"base64":   {Run: baseCommand("base64"), Args: "[OPTION]... [FILE]", What: "Turns bytes into the 64 letters of base64, or back with -d."},
		"base32":   {Run: baseCommand("base32"), Args: "[OPTION]... [FILE]", What: "Turns bytes into the 32 letters of base32, or back with -d."},
		"basenc":   {Run: baseCommand(""), Args: "[OPTION]... [FILE]", What: "Turns bytes into text in the notation that an option names, or back with -d."},
		"cksum":    {Run: cksum, Args: files, What: "Computes a CRC or, with -a, another digest of files, and checks such lists with -c."},
		"sum":      {Run: sum, Args: files, What: "Computes the old 16-bit sums of files and tells their size in blocks."},
		"od":       {Run: od, Args: files, What: "Shows bytes as numbers or characters; as octal words if no option says how."},
		"xxd":      {Run: xxd, Args: "[options] [infile [outfile]]", What: "Shows bytes in hexadecimal beside their text, and with -r makes bytes of such a listing."},
		"numfmt":   {Run: numfmt, Args: "[OPTION]... [NUMBER]...", What: "Writes numbers with units such as K, Mi or G, or without them."},
		"iconv":    {Run: iconv, Args: "[OPTION...] [FILE...]", What: "Changes the character encoding of text: from that of -f to that of -t."},
		"hexdump":  {Run: hexdump, Args: "[options] <file>...", What: "Shows the bytes of files as numbers or, with -C, beside their text."},
		"hd":       {Run: func(c *tool.Call) int { c.Args = append([]string{"-C"}, c.Args...); return hexdump(c) }, Args: "[options] <file>...", What: "Shows the bytes of files in hexadecimal beside their text."},
		"split":    {Run: split, Args: "[OPTION]... [FILE [PREFIX]]", What: "Cuts a file into smaller ones of equal size."},
		"csplit":   {Run: csplit, Args: "[OPTION]... FILE PATTERN...", What: "Cuts a file where lines match patterns or have given numbers."},
		"shuf":     {Run: shuf, Args: "[OPTION]... [FILE]", What: "Puts lines, or the numbers of a range, in random order."},
		"tsort":    {Run: tsort, Args: "[OPTION] [FILE]", What: "Sorts names so that in each pair it reads the first one stays in front."},
		"factor":   {Run: factor, Args: "[OPTION] [NUMBER]...", What: "Takes whole numbers apart into primes."},
		"strings":  {Run: stringsCommand, Args: "[option(s)] [file(s)]", What: "Finds runs of readable characters in files that are not text."},
		"dos2unix": {Run: convertLines(false), Args: "[options] [file ...] [-n infile outfile ...]", What: "Makes line ends CR LF plain LF."},
		"unix2dos": {Run: convertLines(true), Args: "[options] [file ...] [-n infile outfile ...]", What: "Makes plain LF line ends CR LF."},
		"look":     {Run: look, Args: "[options] <string> [<file>...]", What: "Finds the lines of a sorted file that have a given beginning."},
		"colrm":    {Run: colrm, Args: "[startcol [endcol]]", What: "Cuts columns out of its input, counted in characters."},
		"envsubst": {Run: envsubst, Args: "[OPTION] [SHELL-FORMAT]", What: "Replaces $NAME and ${NAME} in its input with the variables' values."},
		"sponge":   {Run: sponge, Args: "[-a] <file>", What: "Reads its input to the end before it writes the file, so that a pipe may end in the file that it began with."},
		"ts":       {Run: ts, Args: "[-r] [-i | -s] [-m] [format]", What: "Says at the head of each line when it came."},
		"pv":       {Run: pv, Args: "[OPTION] [FILE]...", What: "Passes data on, like cat, and tells on standard error how far it is."},
		"yes":      {Run: yes, Args: "[STRING]...", What: "Prints the same line again and again until it is stopped: its arguments, or y.", Leading: true},
	})
	for name := range digests {
		all[name] = usage.Commands(map[string]usage.Program{name: {Run: digest(name), Args: files, What: "Computes the " + digests[name].tag + " digests of files; -c compares files with a list of them."}})[name]
	}
	maps.Copy(all, calc.Commands())
	return all
}
