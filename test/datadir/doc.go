// Package datadir tests what becomes of a data directory that is copied, moved or restored, with
// real daemons and real sandboxes.
package datadir
