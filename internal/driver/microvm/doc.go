// Package microvm builds walls of a virtual machine: a sandbox has a kernel of its own, in QEMU's
// machine "microvm", with hardware virtualization where that works and by emulation (TCG) elsewhere.
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
// on its port as in every other tier. So there is no second channel: no virtio-serial, no vsock, no
// control socket of QEMU. The driver reads nothing that QEMU says, except for the text on its
// console, and the wire expects any frame from anybody. The keeper holds the driver's end, so that
// Recover can adopt the machine after the daemon died.
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
// # Life
//
// A machine that ends by itself (a panic, a reset, a power-off) ends QEMU. Destroy kills QEMU
// through its pidfd. The last lines of the console are the reason of an end that nobody asked for.
//
// # Not there yet
//
// Snapshots, and so pause and fork. The memory given to a sandbox stays its own until it ends.
//
// # Locks
//
// Driver.preparing holds one entry while the boot files are made and the accelerator is tried.
package microvm
