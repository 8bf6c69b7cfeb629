// Package sshdoor is the way in by SSH: commands, shells with a terminal, files over
// SFTP and connections to ports, for the clients and editors that speak nothing else.
// The keys, the handshake and the limits are here; what is done goes through
// [carrel.Computer], as from every other door, so nothing runs in a sandbox for it and
// no SSH server needs to be in the image.
//
// # Names
//
// The user name says which sandbox: its ID, or USER%ID for another user in it than
// the sandbox's own. On a connection that leads to one sandbox alone (ssh's
// ProxyCommand) any other name is the user's, and [DefaultUser] the sandbox's own.
//
// # Who may pass
//
// A key that was added to [Keys], and for the sandboxes that it was added for. A
// stranger learns nothing: whether it is the key, the sandbox or the name that is
// wrong, and before the key was proven to be the caller's, the answer is the same.
//
// # What is there
//
// Sessions with exec, shell, pty-req, window-change, env (LANG and LC_* only), signal
// (TERM and KILL, and INT on a terminal) and the exit status; the subsystem sftp;
// direct-tcpip to the sandbox's own localhost, for ports other than its guest's.
// Refused are connections to anywhere else, listening for the client (reverse
// forwards), agents, X11 and sockets of the file system: each would make the sandbox
// or the client a way to somewhere the policy does not know of.
//
// A terminal's process is ended when its connection breaks; others run on, as they
// do with OpenSSH. A paused sandbox that wakes by itself is woken by the first
// session, not by the handshake.
//
// SFTP knows files as wholes: reading at any place, writing from the beginning to the
// end. Random writes and resuming an upload are refused. scp speaks SFTP; its old
// protocol (scp -O) works where the sandbox has the program scp.
//
// # Bounds
//
// The threat is a stranger who holds connections open, and a client that opens ever
// more channels: handshakes have a deadline and are counted for each address, as are
// tries, connections, channels, open files and idle time.
package sshdoor
