// Package ledger measures what every sandbox, snapshot and build uses, exactly and durably, and says
// what it costs.
//
// # Pieces
//
// Usage is a list of pieces ([state.Usage]): one subject, one size, one unbroken time. [Ledger.Store]
// is the service's store of records with one more duty: a write of a record that makes a sandbox run
// or stop also opens or closes its piece, in the same change. So records and usage always agree, also
// after the daemon was killed. A sandbox that runs on while no daemon is there stays in its open
// piece.
//
// A piece has two measures. "Alive" is its length multiplied by its size. "Active" is what the
// programs really used: the service passes on its measurements ([Ledger.Sample]). Pieces of
// sandboxes are cut at each full hour, so that the active figures belong to the right hour.
//
// # Time
//
// A piece begins at a time of the wall clock. Its length is measured by the machine's monotonic
// clock, which runs on while the daemon is away, and stands still while the machine sleeps. Its end
// is its beginning plus its length. If the wall clock steps, all open pieces are cut at once. A step
// forward leaves a gap in the calendar and a step back makes pieces overlap there, but no second is
// lost or counted twice.
//
// # A sandbox that died while the daemon was away
//
// Its piece ends at the last moment at which the sandbox was known to live: the last heartbeat of
// the daemon that died (they are 10 seconds apart), or the pause that was found. So a project never
// pays for time that nobody can show. After the machine's own stop the same rule holds.
//
// # Active figures after a crash
//
// Processor time comes from a counter of the instance, which survives the daemon. Memory and disk in
// use are interpolated between the last measurement before the crash and the first after it. Network
// bytes are counted by the daemon itself: at most those since the last save are lost, which are
// [Options.SaveBytes] or the traffic of [Options.Save].
//
// # Old usage
//
// After some days the pieces of a sandbox are folded into one for each day, and much later those of
// a whole group of sandboxes ([Ledger.Fold]). Sums over whole days don't change.
//
// # Locks
//
// Ledger.mu guards all fields and is a leaf. A write of records holds its subjects (Ledger.hold),
// so that two writes about one subject reach the store in the order in which their pieces were
// computed.
package ledger
