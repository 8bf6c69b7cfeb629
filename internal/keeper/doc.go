// Package keeper holds open files for a daemon that may die.
//
// A sandbox's link is a socketpair, and a socketpair dies with its last holder. So the daemon's
// ends are also held by the keeper, a tiny process that does nothing else. After a crash, it hands
// them (SCM_RIGHTS) to the next daemon.
//
// [Start] makes sure that a keeper runs. The keeper is the daemon's own binary, detached: it has a
// session of its own, no standard files, no environment, and is not the daemon's child. So neither
// a signal to the daemon's group nor its end touches the keeper. [Dial] connects. The [Client] puts
// files in under names and takes copies out. A keeper without files and clients ends by itself
// after a few seconds, so a clean stop leaves nothing behind. A keeper without a client also ends
// when its socket was removed, because nobody can fetch its files.
//
// # Protocol
//
// A SOCK_SEQPACKET socket carries one message for each request and each answer. A request is one
// byte, the operation, and a name. An answer is one byte, zero for success, and a text. The text is
// the message of an error, or the names of a list, one a line, sorted, at most 32 KiB. To continue
// a list, the client asks with the last name. Put and Get carry one file each.
//
// # Threat
//
// The holder of a link is a sandbox's whole network. The socket is mode 0600, and both sides check
// that the other runs as the same user (SO_PEERCRED). The keeper closes a connection that sends
// anything other than a request.
package keeper
