// Package guest is the protocol between the host and the guest, and the host's
// side of it.
//
// The protocol is E2B's envd, so that their SDKs reach the guest through a plain
// proxy with nothing translated in between. Packages process and filesystem hold
// the generated Connect code; package agent serves it inside the sandbox. [Conn]
// is the host's side: it implements [carrel.Computer] over any way to dial.
package guest

//go:generate go run ../tools/protogen -I spec -out ../.. -module github.com/carrel-dev/carrel process/process.proto filesystem/filesystem.proto
