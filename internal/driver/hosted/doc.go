// Package hosted is what drivers share whose sandboxes are processes of this host. A driver of this kind writes the code that builds
// its own walls; the rest is here, in small parts that do not need one another:
//
//   - [Options] and [Options.Prepare]: what such a driver is made of, checked, and its ground on the host.
//   - [Bounds]: checks a Spec before anything is made. [Remedies]: turns what went wrong in a creation into a carrel.Error.
//   - [Start]: starts the first process, in its control group, and returns its pidfd.
//   - [Links]: makes the daemon's end of a sandbox's link, holds it at the keeper, and finds it again; one that is a stream by
//     its listening socket.
//   - [Life]: Dial, Wait and Destroy, from the start of the first process until the last trace is gone.
//   - [Record], [Decode], [Life.Adopt]: the handle, and how a daemon that did not start a sandbox adopts it.
//   - [MemoryGuard]: bounds the memory where no control group does. [Meter]: Stats. [Ending] and [NewGuestLog]: why a sandbox ended,
//     with its last words.
//   - [Books]: the instances that live, for Close. [Strays] and [KillStray]: what a dead daemon left, for Sweep.
//   - [Trial] and [GroupFindings]: Probe and Report.
package hosted
