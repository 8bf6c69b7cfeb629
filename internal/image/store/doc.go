// Package store keeps templates in a directory and makes them from all supported sources. It
// implements [image.Store].
//
// # On disk
//
//	DIR/<id>/image.erofs     the root filesystem, 0644: sentries get it as an open file
//	DIR/<id>/template.json   the manifest
//	DIR/<id>/image.sums      a checksum of each megabyte of the image, see sums.go
//	CACHE/host-<fingerprint>/image.erofs, template.json, image.sums
//	CACHE/template-<name>-<fingerprint>/ the same
//
// A template is made in its directory, under a lock. image.erofs is fsynced, and then template.json
// appears in one rename. From that rename on the template exists. A directory without template.json
// is a leftover. [Open] removes it unless a process holds its lock.
//
// # Names
//
// Importing under a name that is taken makes a new template with a new ID, and the name moves to it
// in the same instant. The older template can still be reached by ID, for a sandbox that is about
// to start from it. It is removed when the store is opened next. Of several manifests with one
// name, the newest counts.
//
// # Removal
//
// Images are only ever unlinked. A running sandbox has its image open and keeps it. The disk space
// comes back when the last such sandbox ends.
//
// # Space
//
// A new image that is equal to another template's becomes a second link to that file. Where the
// file system can share blocks, an image shares those that another one has at the same places.
// Neither changes what a template is: each has its own name, ID and end.
//
// # The built-in templates
//
// "sim" has no image: it is for the simulated tier. "host" is made from this machine's toolchain at
// the first [Store.Get] or [Store.Prepare], which takes some ten seconds. It is kept by fingerprint
// in the cache directory, where all daemons of one user share it: one makes it, the others wait. An
// image of another fingerprint is removed once no process holds it.
//
// "base" is made by [Store.Make] and [Store.PrepareBase] only, because that fetches hundreds of
// megabytes. Until then "host" stands in for it. Sandboxes made meanwhile lie on host's image and
// say so: their template's ID is that of host. Older programs called this machine's template base. Their images in the cache are
// adopted as host's, see adopt.go.
package store
