// Package zmtp is the client's half of ZMTP 3, ZeroMQ's protocol, as far as a client of a Jupyter
// kernel needs it: one connection to one peer, without encryption (mechanism NULL), for sockets of
// type DEALER and SUB. It is not a ZeroMQ socket: it has no queues, no reconnection and no fair
// distribution over peers. See https://rfc.zeromq.org/spec/23/.
//
// # Threats
//
// The peer is a kernel that runs a stranger's code. So every length is checked before memory is
// allocated for it. A message may be longer than [Options].MaxMessage: its frames beyond the limit
// are read and thrown away, and [Message].Lost says how many bytes are missing. The connection goes
// on.
package zmtp
