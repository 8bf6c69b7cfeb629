// Package shell is a Linux machine that exists only in memory: a bash, over two hundred of the usual programs and a disk, with
// no system call behind them. A Go program embeds it to run scripts that it does not trust, or wants to run fast and always
// alike.
//
//	m, err := shell.New(shell.Options{})
//	if err != nil {
//		return err
//	}
//	defer m.Close()
//	r, err := m.Run(ctx, "seq 3 | paste -sd+ | bc")
//	fmt.Print(r.Stdout) // 6
//
// A [Machine] lasts until Close. Each [Machine.Run] is a new shell on it: the disk stays from one to the next, variables do not.
// [Machine.Start] is the same with streams: standard input, output that arrives while the script runs, a terminal, signals.
// [Machine.Fork] makes another machine that begins with the same disk, in microseconds however much is on it.
//
// # What a script can reach
//
// A script reaches what the machine was given, and nothing else. It is given a disk in memory, a clock and random numbers.
// [Options] add the rest: functions of yours as programs ([Program]), and a way out for HTTP. [Machine.Mount] shows it a directory
// of the host, which package hostfs opens: a Go program that does not import hostfs has no code that opens the host's files for a
// script.
//
// # Bounds
//
// [Limits] bound what scripts use: steps, memory, output, time, processes, open files and the disk. Zero fields are good
// defaults. Reaching steps, memory, output or time ends the script, and [Exit.Limit] says which it was. Going beyond the others is
// refused to the script with the error that Linux has for it ("No space left on device"), and it goes on. A script that
// waits for ever is ended by Limits.Time or by the context.
//
// # Errors
//
// A script that fails is no error: its status tells. Errors are those of the caller: [Error] names what was asked for and the bad
// field, matches [ErrClosed], fs.ErrNotExist and their like with errors.Is, and is never a panic.
//
// # The other packages
//
// The house is built of parts that can be used alone. Each knows those before it:
//
//   - vfs is the disk: a copy-on-write filesystem in memory.
//   - regex matches POSIX and Perl expressions in linear time where they allow it.
//   - tool is the contract between the machine and its programs. Who writes a program against it has all that grep has.
//   - tools/… are the programs, by family, and tools is the table of all.
//   - interp is the machine and its bash. It knows no program of tools: whoever makes a machine gives it the table.
//   - hostfs makes a directory of the host a source that vfs mounts. outside sends a machine's HTTP requests over a dialer.
//   - codemode runs JavaScript that calls granted tools, and makes programs of the tools of an MCP server.
//
// This package puts them together. Use it first, and interp with vfs where a machine's processes, users or snapshots must be
// handled one by one.
package shell
