// Package box drives the real "carrel run" from outside, as root and as an unprivileged user.
//
// The escape suite runs the program in directory attack twice for each case: without the box, where it
// must do harm to canaries that the test made, so that the check can fail; and in the box, where it
// must not. Where the kernel of this machine refuses an attack even without the box the case says so. The
// behaviour suite runs what people run and compares it with what happens outside.
package box
