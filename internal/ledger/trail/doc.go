// Package trail is the audit trail of what callers did: who created, read, changed, entered or
// revealed something, and who was refused.
//
// # Chain
//
// Each record is one line of JSON. It holds the hash of the record before, and its own hash, which is
// the SHA-256 of all its other bytes. So nobody can change, remove or reorder a record without
// changing the hashes of all later ones. Every few seconds in which something happened, a seal is
// appended: a record whose hash is signed with the trail's Ed25519 key. The newest seal's number and
// hash are also in head.json, so that the end of the trail can't be cut off unnoticed. [Verify]
// checks all of it, and says which record is wrong.
//
// # Files
//
//	trail-<first number>.jsonl   the records; the newest file is written to
//	head.json                    the newest seal: number, hash, signature
//	key, key.pub                 the Ed25519 key: PKCS #8 and PKIX, in PEM
//
// A file that is large enough is followed by a new one. When there are too many, or the oldest is too
// old, a cut is appended: a signed record that names the last removed record and its hash. Then the
// file is removed. The rest can still be verified, from the cut on.
//
// # Crashes
//
// A record is handed to the kernel before its caller gets an answer, so kill -9 loses no record of an
// answered request. It is on the disk within a second. After a crash of the machine, an unfinished
// last line is cut off, and a record says so.
//
// # Threats
//
//   - Somebody who can write the files, but does not have the key, changes history: Verify tells
//     what was changed since the last seal. Whoever has the key (the daemon's own user, or root) can
//     sign another history. Against that, the records are sent to another machine as they are made,
//     and a seal's hash that was kept elsewhere can be given to Verify.
//   - A caller who puts line ends or terminal controls into names: every text is bounded and
//     escaped.
//   - A caller who fills the trail, to push out evidence: each caller has a share a day. Operations
//     beyond it are counted. Repeated reads are counted from the start. All tables are bounded.
//   - A full disk: records wait in memory, within a bound. Beyond that they are counted, and the
//     number is a record.
package trail
