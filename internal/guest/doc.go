// Package guest is the protocol between the host and the guest, and the host's
// side of it.
//
// The protocol is E2B's envd, so that their SDKs reach the guest through a plain
// proxy with nothing translated in between. Packages process and filesystem hold
// the generated Connect code; package agent serves it inside the sandbox. [Conn]
// is the host's side: it implements [carrel.Computer] over any way to dial.
//
// # Who ends what
//
// A process belongs to the sandbox, not to who started it: the end of a Start's
// context or a broken connection only disconnects, and Attach finds the process
// again with what the guest still holds of its output. Run is the exception, for
// nobody else knows its process: when its context ends, it kills. A Conn keeps some
// connections open; its Close drops them, and every stream with them.
package guest

//go:generate go run ../tools/protogen -I spec -out ../.. -module github.com/carrel-dev/carrel process/process.proto filesystem/filesystem.proto
