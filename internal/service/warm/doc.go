// Package warm keeps sandboxes ready. They are made ahead. A creation then adopts one of the kind
// that it needs.
//
// A warm sandbox is a real one under its final ID. Its guest is up, has an identity that nobody
// knows, and has run a few commands. Its link lets nothing out. No request can find it: every door
// says NotFound. A creation adopts it by writing the record, giving it the rules, and giving the
// guest the real identity. If the creation asks for nothing else, it takes over the identity that
// the guest has.
//
// A [Pool] decides which sandboxes are made and given up. Package pool decides how many of each
// kind. The pool knows no sandboxes: a [Host] plans, makes, maintains and ends them.
//
// # Locks
//
// shelf.mu guards everything that the pool knows of its sandboxes. It is a leaf, and no foreign
// code runs under it: shelf has no function, interface or channel to call, and shelf.go calls only
// its own methods, its Sizer and packages of plain data. TestShelfCallsNobody and
// TestLockIsFreeInCalls check this. A Host's methods may call the pool.
package warm
