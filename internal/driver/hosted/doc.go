// Package hosted holds the code that is common to drivers whose sandboxes are processes of this
// host. Such a driver writes the code that builds its own walls. The rest is here, in small parts
// that do not need one another:
//
//   - [Options] and [Options.Prepare]: a driver's parameters, checked, and its
//     directories and groups on the host.
//   - [Bounds]: checks a Spec before anything is made. [Remedies]: turns an error of Create into
//     a carrel.Error.
//   - [Start]: starts the first process, in its control group, and returns its pidfd.
//   - [Links]: makes the daemon's end of a sandbox's link, holds it at the keeper, and finds it
//     again. For a link that is a stream it holds the listening socket.
//   - [NewPair]: the two ends of a link of sockets. [OrderFile], [ReadOrder]: what a driver's
//     stage is told.
//   - [Life]: Dial, Wait and Destroy, from the start of the first process until the last trace is gone.
//   - [Record], [Decode], [Life.Adopt]: the handle, and how another daemon adopts the sandbox.
//   - [MemoryGuard]: bounds the memory if no control group does. [Meter]: Stats. [Ending] and
//     [NewGuestLog]: the reason of a sandbox's end, with its last words.
//   - [Books]: the live instances, for Close. [Strays] and [KillStray]: leftovers of a dead daemon,
//     for Sweep.
//   - [Trial] and [GroupFindings]: Probe and Report.
package hosted
