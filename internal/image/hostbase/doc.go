// Package hostbase makes the built-in template "host" from this machine's own toolchain, so that a
// fresh machine can run real work before any image exists.
//
// # What is in it, and what never is
//
// The threat is that a secret of the host reaches an agent. So a file is copied only if a rule
// allows it:
//
//   - /usr, except the parts that are no toolchain ([DefaultExclude]). A file is left
//     out unless every user of this machine may read it: root's private files stay
//     private. A directory that others may not enter is left out whole.
//   - of /usr/local, where people put scripts of their own, only installed
//     toolchains, owned by root; scripts in its bin only if they are known tools.
//   - /etc is written by this package; of the host's only the public,
//     machine-independent parts listed in [etcCopied] are taken. It is an allow
//     list: accounts, keys, tokens and host configuration are not on it.
//   - The lists of apt's sources are written anew, without comments. A list is taken
//     only if each of its sources is public: no address with a name and password, a
//     query or something like a token, and no directory of this machine.
//   - /home, /root, /var, /run, /tmp, /opt, /srv and /mnt are made new and empty.
//   - Links are copied as links and never followed; a link to a place that
//     is not copied is left out. Devices and sockets are left out.
//   - Set-uid and set-gid bits are kept for the few programs that agents need ([setIDKept]).
package hostbase
