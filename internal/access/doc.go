// Package access stands between the doors and the service. It identifies callers, and hides from
// each caller everything that is not its own.
//
// # Who asks
//
// An [Authenticator] makes a [carrel.Caller] from the credentials at a door: an API key, an SSH
// key, a visit to a sandbox's port, a request from inside a sandbox. It is the only code that reads
// X-API-KEY, Authorization, Carrel-Tenant and the cookie of a session. The door puts the caller in
// the context.
//
// The Authenticator knows the keys that it was made with, and those of a [Directory], which keeps
// projects, keys, people and their sessions as records. [People] and [Persons] manage them, and
// [SignIns] makes sessions. A request's context ends with the key that opened it, and with the
// session and the right of a person.
//
// # What is seen
//
// [Service] is [carrel.Service] around a [Core], which checks nobody's rights. Service judges each
// call before the core gets it. There is one exception: the core itself resolves a template's
// reference for the caller. It must, because it passes over a name or ID that the caller may not
// use, in favour of the caller's own. Service judges the result once more, and gives the core the
// ID of the judged template. A sandbox, snapshot or template of another project does not exist for
// the caller. The error is the same one, made at the same place, as for an ID that never existed,
// and nothing is woken, counted or written. Lists, events and the audit log are filtered. Requests
// about the machine itself (the pool) are for administrators, and Forbidden to others.
//
// A caller with [carrel.RoleReader] may do the operations in readings and nothing else, and is not
// shown what would open a sandbox.
//
// The same value has all the side interfaces, so no door needs a type assertion for one.
//
// # Threat
//
// A caller knows or guesses another's ID or name. It looks for a difference between "not yours" and
// "not there": in the answer, in its time, or in the effect. Names belong to each project, so
// nobody can find out that another project has one. One thing stays visible: numbers of events and
// decisions rise when others cause some.
//
// A holder of a key tries to keep its power after the key's end, or to gain a greater one: by making
// another key, by lengthening its own, or by a stream that goes on. An outsider has a stolen copy of
// the records: it holds no secret that opens anything.
package access
