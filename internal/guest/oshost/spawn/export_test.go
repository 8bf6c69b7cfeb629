package spawn

// Refused means that the kernel refuses our kind of clone. Tests set it to use package syscall.
var Refused = &refused
