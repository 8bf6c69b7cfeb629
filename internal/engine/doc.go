// Package engine is [carrel.Service] over many machines. Each node is a daemon, to which the engine
// speaks with a client. The engine keeps nothing that lasts: what it knows of sandboxes is in a
// [Directory] in memory, which the nodes can fill again at any time. So any number of engines may
// work side by side over the same nodes.
//
// # Nodes
//
// [Nodes] says which nodes there are. The engine asks each one every second how busy it is, and now
// and then what works on it and which sandboxes it has. A node that has not answered for
// [Options.DeadAfter], or refuses connections, is away: it gets nothing new, and calls about its
// sandboxes are Unavailable at once. A call that waits for such a node ends then, too. The next
// answer of the node brings it back.
//
// # Where a sandbox is
//
// A call about a sandbox goes to the node that the directory names. If it names none, the engine
// asks all nodes, within a bound, and remembers for a short time that none of them knows the
// sandbox. The answer is NotFound only when every node has said so. If one could not be asked, it
// is Unavailable and names the node.
//
// A node is believed when it speaks of sandboxes that no other node claims. If two claim one ID,
// the engine believes neither: calls are refused until one of them stops. There are two exceptions.
// A node on which this engine made the sandbox itself keeps it. And [Options.Owners], which reads a
// store that all share, decides if it is there.
//
// # New sandboxes
//
// Package placement chooses the node. Another node is tried only where nothing can have happened on
// the first one: it refused the connection or this fleet's key, it answered that it has no room, or
// that it has no such template. If the answer got lost, the sandbox may exist, and the error says
// so. Creations with the same idempotency key go to the same node. The engine remembers which one.
// An engine that does not remember takes the node that the key's hash gives among those that are
// there, so two engines agree as long as they see the same nodes.
//
// # What the fleet does not share yet
//
// Templates, secrets and snapshots are each node's own, unless package front makes them one. Templates and snapshots are found
// on the node that has them. What would have to be the same everywhere (importing templates,
// secrets, builds, keys, usage) is Unsupported here; it is done on each node.
//
// # Rights
//
// The engine checks nobody's rights, as package service does: package access stands before it. But
// it never lets a project see more than its own: calls of others than administrators carry the
// caller's project to the node, which judges by it, and an answer about another project's sandbox
// is refused.
//
// # Threats
//
// A node holds the fleet's key and its sandboxes' content, so it is trusted with these. It is not
// trusted about the sandboxes of other nodes, about its load, or to answer at all. The fleet's key
// is sent to every address that [Nodes] names: only the operator may write that list.
//
// # Locks
//
// Engine.mu, member.mu and Directory.mu are leaves but for one order: Engine.placing is taken
// before member.mu and Directory.mu. No node is called while one of them is held.
package engine
