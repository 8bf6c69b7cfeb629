// Package sshdoor gives access by SSH: commands, shells with a terminal, files over SFTP and
// connections to ports, for clients and editors that speak nothing else. The package itself handles
// the keys, the handshake and the limits. All operations go through [carrel.Computer], as from
// every other door. So nothing runs in a sandbox for it, and the image needs no SSH server.
//
// # Names
//
// The user name names the sandbox: its ID, or USER%ID for a user other than the sandbox's own. On a
// connection that leads to one sandbox only (ssh's ProxyCommand), any other name is a user in it,
// and [DefaultUser] is the sandbox's own user.
//
// # Who may pass
//
// A client may pass with a key that was added to [Keys], and to the sandboxes that it was added
// for. A stranger can't find out whether the key, the sandbox or the name is wrong. Before the
// client proved that it has the key, the answer is always the same.
//
// # What is there
//
// Sessions have exec, shell, pty-req, window-change, env (LANG and LC_* only), signal (TERM and
// KILL, and INT on a terminal) and the exit status. There is the subsystem sftp. direct-tcpip
// reaches the sandbox's own localhost, for ports other than its guest's. The door refuses
// connections to anywhere else, listening for the client (reverse forwards), agents, X11 and
// sockets of the file system. Each of these would make the sandbox or the client a way to places
// that the policy does not know.
//
// When a connection breaks, a terminal's process is ended. Other processes run on, as with OpenSSH.
// The first session wakes a paused sandbox with automatic wake-up. The handshake does not.
//
// SFTP handles whole files: reading at any place, and writing from the beginning to the end. Random
// writes and resuming an upload are refused. scp speaks SFTP. Its old protocol (scp -O) works if
// the sandbox has the program scp.
//
// # Bounds
//
// The threats are a stranger who holds connections open, and a client that opens more and more
// channels. Handshakes have a deadline, and a bound for each address. Tries, connections, channels,
// open files and idle time are bounded too.
package sshdoor
