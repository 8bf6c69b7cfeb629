// Package archive turns the exports of other tools into a template's tree: a tarball of a root
// filesystem, a directory, an OCI image layout, a docker-save archive, or the layers that a
// registry gives (package registry).
//
// # Archives are hostile
//
// Nothing of an archive is ever unpacked into a directory of the host: entries go into a tree in
// memory, contents into the image file. A name with ".." or a leading slash is refused, links are
// resolved inside the tree, and the size, the number of entries and the depth are bounded. So the
// worst result of a bad archive is a refusal. Every refusal names the entry.
//
// Set-id bits are kept. An image is used inside sandboxes only, where they give rights of the
// sandbox's own accounts.
//
// # What is kept
//
// Kept are owners, permissions, set-id and sticky bits, times to the nanosecond, symbolic and hard
// links, named pipes, and empty directories. A later entry of the same name replaces an earlier
// one, as in tar. In layers, whiteouts and opaque directories remove files of lower layers. Left
// out are devices (a sandbox has a /dev of its own), sockets, and extended attributes including
// file capabilities: the sentry refuses to open an inode that has any (see package erofs). A
// sandbox's resolv.conf is always ours.
//
// # Memory
//
// Contents are written into the image as they arrive. When a later layer replaces a file, the
// file's bytes become a hole in the image file. Memory holds only the tree. So it grows with the
// number of entries, which is bounded, and not with their size.
package archive
