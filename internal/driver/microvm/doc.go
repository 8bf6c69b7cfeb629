// Package microvm builds walls of a virtual machine: a sandbox has a kernel of its own, in QEMU's
// machine "microvm", with hardware virtualization where that works and by emulation (TCG) elsewhere.
// Firecracker may take QEMU's place, see below.
//
// # One sandbox
//
// [Driver.Create] starts the stage (this binary again) in new user, pid, mount, network, ipc and uts
// namespaces. The stage builds a root with the host's programs and libraries in it, read-only, and
// with nothing else of the host. It drops all rights and becomes QEMU, under a uid that only this
// sandbox has. QEMU boots the kernel with an initrd that the driver has made. carrel-init in it
// mounts the template and the sandbox's disk, makes the network, and becomes the guest.
//
// The machine has three disks, one network card and a serial console, and no other device. All of
// them are descriptors that the driver opened: QEMU opens no file of the sandbox by its name.
//
// # The door
//
// The network card is one end of a pair of sockets, and the wire has the other end. The guest listens
// on its port as in every other tier. So there is no second channel into the machine: no
// virtio-serial, no vsock. The keeper holds the driver's end, so that Recover can adopt the machine
// after the daemon died.
//
// The driver reads four things that QEMU says, and bounds each: the text on its console, the answers
// on its control socket (QMP), the state that it saves, and frames, for which the wire is made.
//
// # Threats
//
// The code in the sandbox is hostile and is root in its machine, with all rights over its kernel.
// These stop it: the virtual processor, and QEMU's few devices. If it takes QEMU over, it is a
// process without rights, files or network, under a uid that owns nothing, behind a system call
// filter that allows no new process. [Driver.Report] says what is missing on this host. By emulation
// the processor is QEMU's translator, which its authors call no wall against hostile code; then the
// walls around QEMU are the ones that count.
//
// # Engines
//
// An engine is a kind of VMM, behind the interface engine: how it is found, what its stage is told,
// how its machine boots, is saved and is loaded. The text above is about QEMU. Firecracker differs in
// this. It opens disks by names, which the stage shows it. It is configured by requests on a socket,
// which lies in its own root; the driver finds it through /proc and takes nothing there for what it
// seems. Its card is a TAP device of its network namespace; the wire has a packet socket on that
// device, made by the stage. A snapshot is written into files that were made before the VMM started.
// Firecracker works with KVM only. This engine was written from documentation, and has been run with
// the stand-in of the tests only (fake_test.go).
//
// # Life
//
// A machine that ends by itself (a panic, a reset, a power-off) ends QEMU. Destroy kills QEMU
// through its pidfd. The last lines of the console are the reason of an end that nobody asked for.
//
// # Time
//
// A snapshot stops the machine, has QEMU write its state, and divides that stream: the memory becomes
// a flat file with holes, the rest is a few kilobytes. The disk is copied, by its blocks where the
// filesystem can share them. Before that the guest writes all that it has to the disk, so that the
// disk alone is a snapshot of files. A restored VMM maps a sealed copy of the memory, which all
// sandboxes of one snapshot share, and copies the pages that it writes.
//
// A restored kernel is told the time, gets entropy, draws another boot ID and ends its connections,
// before Restore returns. Its programs run a few milliseconds earlier: QEMU's microvm has no device
// that tells a kernel of its copy.
//
// A freeze stops QEMU's process and not its machine, so that time passes inside.
//
// The disk of a snapshot is a filesystem that the sandbox wrote. Another machine without a link reads
// it ([Driver.SnapshotFiles]), never the host's kernel.
//
// # Not there yet
//
// The memory given to a sandbox stays its own until it ends. Snapshots hold the whole memory, not what
// changed.
//
// # Locks
//
// Instance.ice holds one entry while the machine is frozen, thawed or saved. memories.mu and
// imageIDs.mu are held for no other lock.
//
// Driver.preparing holds one entry while the boot files are made and the accelerator is tried.
package microvm
