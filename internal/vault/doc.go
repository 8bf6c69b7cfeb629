// Package vault keeps secrets. They are encrypted on disk and sealed in memory. Only the wire gets
// their values, and puts them into requests on their way out.
//
// # Files
//
// A directory of mode 0700 holds
//
//	key              32 random bytes, mode 0600, made on first use, unless Options.KeyFile
//	                 names another file, which must exist then
//	key.next         while the key is being changed: see [Vault.Rekey]
//	sec_….json       one secret: its public data in clear, and its value sealed
//
// A value is sealed with AES-256-GCM under a key of its own, which is derived from the vault's key
// and the secret's ID. All other fields of the file are authenticated with it: the owner, the ID,
// the name, the version, the metadata and the hosts. So a file that was edited, cut, renamed or
// swapped with another is refused when the vault is opened, and its secret with it. The others go
// on working.
//
// Every change replaces one file atomically and is on the disk when the call returns.
//
// # Threat
//
// Somebody reads the disk, a backup or the memory image of a sandbox: without the key, nothing can
// be read. With Options.KeyFile, the key need not lie on the same disk.
//
// Somebody edits the files, to have a secret sent to a host that its owner did not allow: the files
// are refused. One attack is not noticed: an older file of the same secret that replaces the whole
// file.
//
// Somebody reads logs, errors or crash reports: no value is in them.
//
// Somebody reads this process's memory: then they have everything. Nothing here can prevent that.
package vault
