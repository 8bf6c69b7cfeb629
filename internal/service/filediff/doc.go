// Package filediff says which files are different between two snapshots of one template.
//
// [Read] takes in what a snapshot holds on top of its template's image, from the driver's
// tar stream. [Compare] walks two of those beside the image. The stream is a sandbox's
// word: how many names and bytes of it are taken in is bounded.
package filediff
