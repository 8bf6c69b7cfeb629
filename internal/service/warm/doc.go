// Package warm keeps sandboxes ready: made ahead, adopted by the creation that next wants
// one of their kind.
//
// A sandbox that is ready is a real one under its final ID. Its guest is up, has an
// identity that nobody knows, and has run a few commands; its link lets nothing out. It is
// in no table that a request can look into: every door says NotFound. A creation adopts
// it by writing the record, giving it the rules, and giving the guest the real identity;
// or by taking over the one that it has, where the creation asks for nothing else.
//
// A [Pool] decides what is made and what is given up; package pool says how many of which
// kind. It knows no sandboxes: a [Host] plans, makes, looks after and ends them.
//
// # Locks
//
// shelf.mu guards all that the pool knows of its sandboxes. It is a leaf, and no code of
// anybody else runs under it: shelf has no function, interface or channel to call, and
// shelf.go calls nothing but its own methods, its Sizer and plain data's packages.
// TestShelfCallsNobody and TestLockIsFreeInCalls keep it so. A Host's methods may call the
// pool.
package warm
