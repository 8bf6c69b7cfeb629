// Package vault keeps secrets: encrypted on the disk, sealed in memory, and told to
// nobody but the wire, which puts them into requests on their way out.
//
// # Files
//
// A directory of mode 0700 holds
//
//	key              32 random bytes, mode 0600, made on first use, unless Options.KeyFile
//	                 names another file, which must exist then
//	key.next         while the key is being changed: see [Vault.Rekey]
//	sec_….json       one secret: what is told of it in clear, and its value sealed
//
// A value is sealed with AES-256-GCM under a key of its own, which is derived from the
// vault's key and the secret's ID. Everything else that the file says is authenticated
// with it: the owner, the ID, the name, the version, the metadata and the hosts. A
// file that was edited, cut, renamed or swapped with another is therefore refused when
// the vault is opened, and its secret with it; the others go on working.
//
// Every change replaces one file atomically and is on the disk when the call returns.
//
// # Threat
//
// Somebody reads the disk, a backup or the memory image of a sandbox: without the key
// there is nothing to read, and with Options.KeyFile the key need not lie on the same
// disk. Somebody edits the files, to have a secret sent to another host than its owner
// said: refused. What is not noticed is that a whole file was replaced by an older one of the
// same secret. Somebody reads logs, errors or crash reports: no value is in them. Who
// reads this process's memory has everything; nothing can be done about that here.
package vault
