// Package guest is the protocol between the host and the guest, and the host's side of it.
//
// The protocol is E2B's envd. So E2B's SDKs reach the guest through a plain proxy, and nothing is
// translated in between. Packages process and filesystem hold the generated Connect code; package
// agent serves it inside the sandbox. [Conn] is the host's side: it implements [carrel.Computer]
// over any way to dial.
//
// # Who ends what
//
// A process belongs to the sandbox, not to the caller that started it. The end of a Start's
// context, or a broken connection, only disconnects. Attach finds the process again, with the
// output that the guest still holds. Run is the exception, because nobody else knows its process:
// when its context ends, it kills the process. A Conn keeps some connections open. Its Close drops
// them, and every stream on them.
package guest

//go:generate go run ../tools/protogen -I spec -out ../.. -module github.com/carrel-dev/carrel process/process.proto filesystem/filesystem.proto
