// Package admission decides when work that the machine can only do so much of may
// begin, and says at once when it can't: it is what stands between a burst of
// requests and a machine that does all of them and finishes none.
//
// # The gate
//
// Whoever is about to start a sandbox enters a [Gate] and leaves it with
// [Pass.Done]. As many are inside as the machine sustains; the gate finds that
// number by itself, from how much longer a start takes when others run (see
// limit.go). The others wait. Wakes of paused sandboxes, behind which a visitor's
// request is held, go before creations. Among sharers the one with the least
// inside is next, so that one who asks for a thousand sandboxes delays another,
// who asks for one, by one.
//
// Work that nobody waits for ([Gate.Spare]) is let in only while nobody is in the queue.
//
// # Refusing
//
// The queue is bounded in length and in time. A request is refused when it comes,
// and not after a wait, if by the gate's estimate it would wait longer than
// [Options.MaxWait], than its own context lasts, or than this sharer's clients
// have lately been willing to wait. A full queue takes a request of a sharer with
// less than its share in place of the newest one of the sharer with the most.
// Whoever hangs up while waiting leaves the queue. Each refusal names the limit
// and how many wait, and says when to try again.
//
// Refusals are [*carrel.Error]: Exhausted when there are too many requests,
// Unavailable when the machine lacks memory, descriptors, tasks or disk (see [Host]).
//
// # Locks
//
// Gate.mu guards everything; nothing is called with it held.
package admission
