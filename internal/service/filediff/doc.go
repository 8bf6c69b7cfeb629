// Package filediff lists the files that differ between two snapshots of one template.
//
// [Read] reads the files that a snapshot holds on top of its template's image, from the driver's
// tar stream. [Compare] compares two of those, and looks at the image where it must. The stream
// comes from the sandbox and is not trusted: the names and bytes that Read takes from it are
// bounded.
package filediff
