//go:build linux

// Package datadir tells a data directory from its copies.
//
// # Identity
//
// A data directory has an identity: a random ID in the file datadir.json. The names of everything
// outside the directory (processes, control groups) are made from this ID, so two directories never
// touch each other's. The file also says where the directory was when a daemon last opened it: the
// host, the boot, the filesystem's device, and the number and time of birth of the directory's
// inode. A copy of the directory has the same file, but lies elsewhere.
//
// A checksum protects the file, and there is a second one. A directory whose files are both damaged
// is not opened: nobody can say whether it is a copy.
//
// # Decision
//
// [Open] compares the file with the directory itself:
//
//   - A directory without the file is new, or older than this package. It gets an identity.
//   - The same inode on the same device in the same boot is the same directory, whatever its path.
//     So mv within a filesystem changes nothing.
//   - After a reboot, devices may have other numbers. The same inode on the same host is then the
//     same directory, unless another directory with this identity lies at the recorded path.
//   - Everything else is a copy: cp, another filesystem, another host. The recorded directory may
//     still live, so the copy gets an ID of its own.
//
// Some filesystems (FUSE, 9P) have no lasting inode numbers. There the host and the path decide.
//
// # Limits
//
// A clone of a whole machine has the same host ID and the same inodes. The package takes it for the
// original after a reboot.
package datadir
