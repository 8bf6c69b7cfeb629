// Package timeline indexes the snapshots of sandboxes: their names, their order, their present
// users, and the ones that a retention rule does not keep.
//
// An [Index] follows the store: package service first makes a change durable and then puts it here.
// An Index calls only the functions that it gets for one call, and no driver, store or network.
//
// # Locks
//
// Edits (LockEdits) come before Index.mu, which is a leaf: no other lock is taken under it.
package timeline
