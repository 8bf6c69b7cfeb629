// Package archive turns what other tools export into a template's tree: a tarball
// of a root filesystem, a directory, an OCI image layout, a docker-save archive,
// or the layers that a registry gives (package registry).
//
// # Archives are hostile
//
// Nothing of an archive is ever unpacked into a directory of the host: entries
// go into a tree in memory, contents into the image file. A name with ".." or a
// leading slash is refused, links are resolved inside the tree, and the size, the
// number of entries and the depth are bounded, so the worst an archive can do is
// be refused. Every refusal names the entry.
//
// # What is kept
//
// Owners, permissions, set-id and sticky bits, times to the nanosecond, symbolic
// and hard links, named pipes, empty directories. A later entry of the same name
// replaces an earlier one, as in tar; in layers, whiteouts and opaque directories
// take away what lower layers brought. Left out are devices (a sandbox has a /dev
// of its own), sockets, and extended attributes with file capabilities among
// them: the sentry refuses to open an inode that has any (see package erofs).
// A sandbox's resolv.conf is always ours.
//
// # Memory
//
// Contents are written into the image as they arrive; those that a later layer
// replaces are punched out again. What is held is the tree, so memory grows with
// the number of entries, which is bounded, and not with their size.
package archive
