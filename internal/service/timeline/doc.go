// Package timeline knows the moments of sandboxes: which there are, what they are called,
// which came after which, who uses one now, and which a retention rule does not keep.
//
// An [Index] follows the store: package service makes a change durable first and puts it
// here then. It calls nothing but what it was given for one call, and no driver, store or
// network.
//
// # Locks
//
// Edits (LockEdits) come before Index.mu, which is a leaf: no other lock is taken under it.
package timeline
