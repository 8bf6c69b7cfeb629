// Package audit is the durable log of what the wire decided: one line of JSON for
// each [carrel.Decision].
//
// # Files
//
// The newest decisions are in audit.jsonl. When it is large or old enough it is
// renamed to audit-<first number>.jsonl and a new one begun; in the background it is
// then compressed to audit-<first number>.jsonl.zst, which any zstd reads. The
// oldest files are removed when there are too many. Decisions are numbered without
// gaps, over all files and restarts. What a crash left half written at the end is cut
// off; what is broken elsewhere is passed over.
//
// # Threats
//
// What is logged comes from programs that nobody trusts, and is evidence against them.
//
//   - A text that is no text: every value is bounded and escaped, so that no name or
//     path can begin a line, end a string, or move the cursor of a terminal.
//   - A flood that fills the disk: files are bounded in size and number.
//   - A flood that pushes out the evidence, the sandbox's own or others': each sandbox
//     has a share of events a second and a share of the log a day. What goes beyond is
//     counted, by rule and verdict, and the counts are written (Repeats).
//   - A flood that holds up the wire: Write waits for nobody. When the disk is slower
//     than the sandboxes, allowed decisions are dropped, the oldest first, and their
//     number is written; refusals are never dropped, at worst they are counted as above.
//   - A disk that is full: what is queued is kept and written when there is room.
//
// # Reading
//
// Readers read the files, also the followers, who are only woken: however slow, they
// hold up nobody, miss nothing and see nothing twice. A reader sees all that was
// written before it began.
//
// # Locks
//
// Log.mu guards what is queued and files.mu what files there are; no one holds both.
package audit
