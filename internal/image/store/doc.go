// Package store keeps templates in a directory and makes them from whatever they
// come as. It implements [image.Store].
//
// # On disk
//
//	DIR/<id>/image.erofs     the root filesystem, 0644: sentries get it as an open file
//	DIR/<id>/template.json   the manifest
//	CACHE/base-<fingerprint>/image.erofs, template.json
//
// A template is made in its directory, under a lock; image.erofs is fsynced, and
// then template.json appears in one rename. That rename is the moment the template
// exists: a directory without it is a leftover, and [Open] removes it unless
// somebody holds its lock.
//
// # Names
//
// Importing under a name that is taken makes a new template with a new ID, and the
// name moves to it in the same instant. The older one can still be reached by ID,
// so that a sandbox about to start from it does; it is removed when the store is
// opened next. Among manifests of one name the newest counts.
//
// # Removal
//
// Images are only ever unlinked. A sandbox that runs from one has the file open
// and keeps it; the disk space comes back when the last such sandbox ends.
//
// # The built-in templates
//
// "sim" has no image: it is for the simulated tier. "base" is made from this
// machine's toolchain at the first [Store.Get] or [Store.Prepare], some ten
// seconds of work, and kept in the cache directory by fingerprint, where all
// daemons of one user share it: only one makes it, the others wait. A base of
// another fingerprint is removed once nobody holds it.
package store
