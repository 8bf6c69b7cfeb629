// Package erofs writes uncompressed EROFS images that gVisor's sentry, the Linux kernel and a
// virtual machine can all use as a root filesystem.
//
// The caller keeps a tree of [Node] and puts file contents into the image as they arrive.
// [Writer.Reserve] gives a file its place. [Writer.Fill] copies the bytes there; several calls may
// run at once. [Writer.Finish] writes inodes and directories behind the contents, and the
// superblock last. Memory holds only the tree, some 200 bytes per entry, whatever the size of the
// files.
//
// # Why a writer of our own
//
// The sentry's EROFS is strict. Its refusals show only when a program touches the file:
//
//   - contents stored inside the inode ("inline data") can be read but not
//     mapped: the first mmap access is a SIGBUS. glibc maps its small locale files,
//     and linkers map small libraries, so every regular file here starts on a
//     block of its own;
//   - an inode with extended attributes can't be opened at all (ENOTSUP), so none
//     are written;
//   - chunk tables, compression and extra devices are refused, so files are plain
//     extents, and holes are holes of the image file only.
//
// Ready-made writers inline small files and turn hard links into copies. Here a Node that appears
// twice in the tree is one inode with two links.
//
// The format is described at https://docs.kernel.org/filesystems/erofs.html.
package erofs
