// Package shell is a Linux machine that exists only in memory. It has bash, over two hundred of the
// usual programs and a disk, and makes no system call for them. A Go program embeds it to run
// scripts that it does not trust, or that must be fast and give the same result each time.
//
//	m, err := shell.New(shell.Options{})
//	if err != nil {
//		return err
//	}
//	defer m.Close()
//	r, err := m.Run(ctx, "seq 3 | paste -sd+ | bc")
//	fmt.Print(r.Stdout) // 6
//
// A [Machine] lasts until Close. Each [Machine.Run] is a new shell on it: files stay from one run
// to the next, variables do not. [Machine.Start] does the same with streams: standard input, output
// that arrives while the script runs, a terminal, signals. [Machine.Fork] makes another machine
// that begins with the same disk. This takes microseconds, however large the disk is.
//
// # What a script can reach
//
// A script can reach only the things that its machine was given. These are a disk in memory, a
// clock and random numbers. [Options] can add Go functions as programs ([Program]), and a way to
// send HTTP requests. [Machine.Mount] shows it a directory of the host, which package hostfs opens.
// A Go program that does not import hostfs has no code that opens the host's files for a script.
//
// # Bounds
//
// [Limits] bound what scripts use: steps, memory, output, time, processes, open files and the disk.
// A zero field means a good default. A script that reaches the limit of steps, memory, output or
// time ends, and [Exit.Limit] names that limit. A script that reaches another limit gets the error
// that Linux has for it ("No space left on device"), and goes on. A script that waits for ever is
// ended by Limits.Time or by the context.
//
// # Errors
//
// A script that fails is not an error: its status tells. Errors are about the caller's own calls.
// [Error] names the call and the bad field, and matches [ErrClosed], fs.ErrNotExist and the like
// with errors.Is. No call panics.
//
// # The other packages
//
// The packages below can also be used alone. Each one imports only packages above it in this list.
// The only exception is node in tools/script, which uses codemode:
//
//   - vfs is the disk: a copy-on-write filesystem in memory.
//   - regex matches POSIX and Perl expressions, in linear time where they allow it.
//   - tool is the contract between the machine and its programs. A program written against it can
//     do all that grep can do.
//   - tools/… are the programs, by family, and tools is the table of all.
//   - interp is the machine and its bash. It does not import tools: its caller passes the table of
//     programs.
//   - hostfs makes a directory of the host a source that vfs mounts. outside sends a machine's HTTP
//     requests over a dialer.
//   - codemode runs JavaScript that calls granted tools, and makes programs of the tools of an MCP
//     server.
//
// This package puts them together. Use it first. Use interp with vfs if you must handle a machine's
// processes, users or snapshots one by one.
package shell
