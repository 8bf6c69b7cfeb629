// Package sim is the driver of the simulated tier: sandboxes without an operating
// system.
//
// A sandbox is a filesystem in memory, a shell written in Go (package sh) and the
// very same guest that runs in real sandboxes (package guest/agent), served over
// connections that exist only inside this process. It starts in microseconds and
// needs nothing of the host, which makes it the twin for tests and a real place
// for agents that need no more than a shell and files.
//
// # The wall
//
// Nothing a sandbox runs is native code, and package sh makes no system call:
// what an agent does can't reach the host because there is no way to say it.
// Native programs are refused: there is no machine to run them. What can be
// exhausted is bounded: bytes on the disk (Limits.DiskMB), bytes in variables and
// buffers (Limits.MemoryMB; files are counted as disk, and they too live in the
// daemon's memory), processes (Limits.Pids), and per command steps and output.
// Processor time is shared with the daemon and not limited; Info says so.
//
// # Time
//
// A simulated sandbox ends with its process: [Driver.Recover] always answers
// NotFound. Its files can be kept. A snapshot is one small file: what the sandbox
// changed in the template, of one moment, with a checksum; processes are not in it,
// whatever was asked for. It is read as if an enemy had written it. [Driver.Restore]
// puts it on the template of the running build, as an overlay lies on its image, so a
// newer build's tools are there after a restore, too. A sandbox can't be frozen: a
// tool in the middle of its work asks nobody whether it may go on.
package sim
