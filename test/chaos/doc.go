// Package chaos damages real daemons and checks that nothing acknowledged is lost.
//
// A trial starts a daemon (bin/carrel serve) on a data directory of its own, does random
// operations, and then causes a fault: a kill, a power cut, damage to a file, a full disk, a copy
// of the directory, another build. The oracle is outside the daemon. It keeps a journal of every
// acknowledged operation: which sandboxes and snapshots exist, the checksum of each file in them,
// and a number in the memory of a process. After each fault it compares the daemon with the
// journal. Each difference is a violation.
//
// An operation that was not acknowledged may have happened or not. The journal calls it a doubt.
// The oracle accepts both results, but nothing in between.
//
// "make chaos" runs trials until DURATION is over. A trial prints one line with its seed: the same
// seed chooses the same operations and faults. The moment of a kill depends on the machine, so a
// seed does not always find the same violation again. The directory of a failed trial is kept.
//
// [TestOracle] and [TestMutants] test the suite itself. The first tells the oracle lies about
// what was acknowledged. The second takes fixes out of the daemon, one at a time, by its fail
// points. Each must be found.
//
// docs/RELIABILITY.md lists what is promised, and the trial that tests each promise.
package chaos
