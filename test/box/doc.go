// Package box drives the real "carrel run" from outside, as root and as an unprivileged user.
//
// The escape suite runs the program in directory attack twice for each case. Without the box it
// must harm canaries that the test made, so that the check can fail. In the box it must not. If
// this machine's kernel refuses an attack even without the box, the case says so. The behaviour
// suite runs people's usual programs in the box and compares the result with a run outside.
package box
