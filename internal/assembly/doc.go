// Package assembly puts together the parts below the doors: the stores, the drivers, the wire, and
// the service over them. The daemon and package local both get their service here.
//
// # Two kinds of service
//
// A lasting service keeps everything in its data directory, and its sandboxes outlive it.
// [Options.Lasting] opens the parts that only such a service has. They are functions, so that a
// program which embeds Carrel does not link a database.
//
// A passing service ends with its process, however the process ends, and its sandboxes end with it.
// It keeps its own files in a temporary directory and its records in memory. Simulated sandboxes
// run in its own process. The drivers of real sandboxes are opened at the first use. Until then a
// passing service leaves no trace on the host but its directory.
//
// # Order
//
// [Open] opens the parts from the bottom: the wire, the drivers, the stores, the service, the door
// for requests from inside sandboxes. [Assembly.Close] closes them in reverse.
package assembly
