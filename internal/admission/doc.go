// Package admission decides when a sandbox may start, or other work may begin, when the machine can
// do only a limited amount at once. It refuses at once the requests that it can't serve in time.
// Without it, a machine with a burst of requests would begin all of them and finish none.
//
// # The gate
//
// Code that is about to start a sandbox enters a [Gate] and leaves it with [Pass.Done]. As many are
// inside as the machine sustains. The gate finds that number by itself, from how much longer a
// start takes when others run (see limit.go). The others wait. Wakes of paused sandboxes go before
// creations, because a visitor's request is held for a wake. Turns are shared: the sharer with the
// least work inside is next. So a caller that asks for a thousand sandboxes delays another caller,
// who asks for one, by one.
//
// Work that no caller waits for ([Gate.Spare]) is let in only while the queue is empty.
//
// # Refusing
//
// The queue is bounded in length and in time. A request is refused at once, and not after a wait,
// if by the gate's estimate it would wait longer than [Options.MaxWait], than its own context
// lasts, or than this sharer's clients have lately been willing to wait. A full queue may still
// take a request of a sharer with less than its share. Then the newest request of the sharer with
// the most leaves. A client that hangs up leaves the queue. Each refusal names the limit and the
// length of the queue, and says when to try again.
//
// Refusals are [*carrel.Error]: Exhausted when there are too many requests, Unavailable when the
// machine lacks memory, descriptors, tasks or disk (see [Host]).
//
// # Locks
//
// Gate.mu guards everything. Nothing is called while it is held.
package admission
