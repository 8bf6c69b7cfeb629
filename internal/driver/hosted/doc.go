// Package hosted is what drivers share whose sandboxes are processes of this host: the life of one from the start of its first process
// until the last trace is gone, and how it is found again by a daemon that did not start it.
package hosted
