// Package sim is the driver of the simulated tier: sandboxes without an operating system.
//
// A sandbox is a filesystem in memory, a shell written in Go (package sh), and the same guest that
// runs in real sandboxes (package guest/agent). The guest is served over connections that exist
// only inside this process. Such a sandbox starts in microseconds and needs nothing of the host. It
// serves as the twin for tests, and as a real place for agents that need only a shell and files.
//
// # The wall
//
// A sandbox runs no native code, and package sh makes no system call. An agent can't reach the host
// because its language has no words for that. Native programs are refused: there is no machine to
// run them. The resources that a sandbox can exhaust are bounded: bytes on the disk
// (Limits.DiskMB), bytes in variables and buffers (Limits.MemoryMB), processes (Limits.Pids), and
// steps and output per command. Files count as disk, although they too live in the daemon's memory.
// Processor time is shared with the daemon and not limited; Info says so.
//
// # Time
//
// A simulated sandbox ends with its process: [Driver.Recover] always returns NotFound. Its files
// can be kept. A snapshot is one small file with a checksum. It holds the sandbox's changes to the
// template at one moment, and never processes. It is read as if an enemy had written it.
// [Driver.Restore] puts it on the template of the running build, as an overlay lies on its image.
// So after a restore the tools of a newer build are there. A sandbox can't be frozen, because a
// tool that runs does not ask whether it may go on.
package sim
