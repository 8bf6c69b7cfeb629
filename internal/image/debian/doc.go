// Package debian makes root filesystems from Debian's packages, with no help of Debian's tools on
// this machine. They are the built-in templates debian, python, node, go, rust and java. It also gets
// the kernel of virtual machines from there.
//
// # Steps
//
//  1. The packages of a template are pinned: name, version, size and SHA-256 ([Set], the files in
//     pins/). So every machine makes the same template.
//  2. Packages come from a [Mirror] into a cache ([Fetcher]).
//  3. Their files become one tree with dpkg's database, in which each package is "unpacked" but not
//     configured ([WriteRoot]). It is a first image.
//  4. A sandbox without a network starts from that image, runs the packages' own scripts as dpkg
//     does, and gives the changed tree back ([Configure]). Package assembly brings the sandbox.
//  5. Everything that differs from one making to the next is removed ([Clean]): logs, caches,
//     times. The rest is the template's image, and its SHA-256 is the template's digest.
//
// The package of a kernel for virtual machines is pinned and fetched in the same way. It becomes no
// template: its kernel and some of its modules go into a directory ([Kernels]).
//
// # Threats
//
// A mirror is not trusted, nor is the way to it. It can refuse, but not change a bit: a package
// whose SHA-256 is not the pinned one is thrown away unread. It can send too much, nothing or
// little by little; each has a bound. A mirror that redirects can't lead this machine's requests
// to addresses that only this machine reaches ([Fetcher]).
//
// Packages are pinned and signed, so they are trusted as far as Debian is. They are unpacked with
// care nonetheless: into a tree in memory and an image file, never into a directory of this machine
// (see package archive). Their scripts run inside a sandbox only. Of a kernel's package, files with
// names that this program knows or that modules give as their own are written into a new directory, and
// nothing is run on this machine.
package debian
