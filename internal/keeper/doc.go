// Package keeper holds open files for a daemon that may die.
//
// A sandbox's link is a socketpair, and a socketpair dies with its last holder. So
// the daemon's ends are also held by the keeper: a tiny process that does nothing
// else, and hands them back (SCM_RIGHTS) to the next daemon after a crash.
//
// [Start] makes sure that a keeper runs; it is the daemon's own binary, detached:
// a session of its own, no standard files, no environment, and not the daemon's
// child, so that neither a signal to the daemon's group nor its end touches it.
// [Dial] connects; the [Client] puts files in under names and takes copies out.
// A keeper that holds nothing and has no client ends by itself after a few
// seconds, so a clean stop leaves nothing behind. So does one without a client
// whose socket was removed: nobody can come for what it holds.
//
// # Protocol
//
// A SOCK_SEQPACKET socket, one message for each request and each answer. A request
// is one byte, the operation, and a name; an answer is one byte, zero for success,
// and a text: the message of an error, or the names of a list, one a line, sorted,
// at most 32 KiB, continued by asking with the last name. Put and Get carry one
// file each.
//
// # Threat
//
// Whoever holds a link is a sandbox's whole network. The socket is mode 0600, and
// both sides check that the other runs as the same user (SO_PEERCRED). Anything
// that is not a request closes the connection.
package keeper
