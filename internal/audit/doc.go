// Package audit is the durable log of the wire's decisions: one line of JSON for each
// [carrel.Decision].
//
// # Files
//
// The newest decisions are in audit.jsonl. When this file is large or old enough, it is renamed to
// audit-<first number>.jsonl and a new one is begun. In the background, the old file is then
// compressed to audit-<first number>.jsonl.zst, which any zstd can read. The oldest files are
// removed when there are too many. Decisions are numbered without gaps, over all files and
// restarts. A half-written end after a crash is cut off. Broken lines elsewhere are skipped.
//
// # Threats
//
// The logged texts come from untrusted programs, and are evidence against them.
//
//   - A text with control characters: every value is bounded and escaped, so that no name
//     or path can begin a line, end a string, or move the cursor of a terminal.
//   - A flood that fills the disk: files are bounded in size and number.
//   - A flood that pushes out the evidence, the sandbox's own or others': each sandbox
//     has a share of events a second and a share of the log a day. Decisions beyond it
//     are counted, by rule and verdict, and the counts are written (Repeats).
//   - A flood that holds up the wire: Write waits for nobody. When the disk is slower
//     than the sandboxes, allowed decisions are dropped, the oldest first, and their
//     number is written. Refusals are never dropped, at worst they are counted as above.
//   - A full disk: the queue is kept, and written when there is room.
//
// # Reading
//
// Readers read the files. So do followers, who are only woken. However slow readers are, they hold
// up nobody, miss nothing and see nothing twice. A reader sees everything that was written before
// it began.
//
// # Locks
//
// Log.mu guards the queue, and files.mu the list of files. No goroutine holds both.
package audit
