// Package hostbase makes the built-in template "base" from this machine's own
// toolchain, so that a fresh machine can run real work before any image exists.
//
// # What is in it, and what never is
//
// The threat is a secret of the host reaching an agent. So nothing is copied
// because it is there, only because a rule lets it in:
//
//   - /usr, without what is no toolchain ([DefaultExclude]). A file must be
//     readable by every user of this machine, or it is left out: what root keeps
//     for itself stays with root. A directory others may not enter is left out whole.
//   - of /usr/local, where people put scripts of their own, only installed
//     toolchains, owned by root; scripts in its bin only if they are known tools.
//   - /etc is written by this package; of the host's only the public,
//     machine-independent parts listed in [etcCopied] are taken. It is an allow
//     list: accounts, keys, tokens and host configuration are not on it.
//   - Of apt's sources the lists are written anew, without comments, and only those of which every source is public: no list
//     with a name and password, a query or what looks like a token in an address, or with a directory of this machine.
//   - /home, /root, /var, /run, /tmp, /opt, /srv and /mnt are made new and empty.
//   - Links are copied as links and never followed; one that leads to a place that
//     is not copied is left out. Devices and sockets are left out.
//   - Set-uid and set-gid bits are kept for the few programs that agents need ([setIDKept]).
package hostbase
